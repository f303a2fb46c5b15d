//! `drover image` against a scripted herd.

use super::super::options::{BuildImageOptions, ImageAction};
use super::*;

async fn run(action: ImageAction) -> Result<(u8, String), CliError> {
    let served = Served::default();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let code = remote::run(&global(&served.socket), Command::Image(action), &mut term).await?;
    Ok((code, String::from_utf8(out).unwrap()))
}

// Invariant: a caller who follows a build that the service does not know hears so, and what to do.

#[tokio::test]
async fn a_build_that_the_service_lost_is_not_waited_for() {
    let options = BuildImageOptions {
        image: "debian".into(),
        node: None,
        variables: Vec::new(),
        afresh: false,
        dry_run: false,
        no_wait: false,
    };
    let fault = run(ImageAction::Build(options)).await.unwrap_err();
    assert_eq!(fault.exit_code(), 75);
    insta::assert_snapshot!(chain(&fault), @"build b1 on pve1 is not known: drover started again since. A build that had a guest begins again by itself: `drover image list` shows it. Where it does not, run the command again");
}

// Invariant: what could not be read is named by its cloud and its cluster.

#[tokio::test]
async fn a_cloud_that_was_not_read_is_named() {
    let (code, said) = run(ImageAction::List(ListOptions::default())).await.unwrap();
    assert_eq!(code, 0);
    assert!(
        said.ends_with("cloud far (cluster unknown) was not read: it does not answer\n"),
        "{said}"
    );
}
