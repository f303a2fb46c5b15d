//! What `drover setup` says of itself.

use clap::CommandFactory as _;

use super::super::Cli;

/// The help of one command below `setup`, as `--help` prints it.
fn help(name: &str) -> String {
    let mut all = Cli::command().bin_name("drover");
    all.build();
    let setup = all.find_subcommand_mut("setup").unwrap();
    let command = setup.find_subcommand_mut(name).unwrap();
    // What is set here is no part of it.
    let command = command.clone().mut_args(|arg| arg.hide_env_values(true));
    let mut command = command.term_width(100);
    command.render_long_help().to_string()
}

// Invariant: every option is shown with what it stands at.

#[test]
fn setups_commands_say_their_options() {
    for name in ["service", "dhcp", "vip"] {
        insta::assert_snapshot!(format!("help_of_{name}"), help(name));
    }
}
