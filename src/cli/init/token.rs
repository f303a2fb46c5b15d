//! The token of drover, looked at before anything is asked or made: where it exists and this computer does
//! not have its secret, somebody must choose.

use drover_admin::init::{Answers, TakenToken, taken_token};
use drover_hypervisor::Client;
use drover_ssh::quote;

use super::super::error::{CliError, failed};
use super::InitOptions;
use super::files::Place;

/// Refuses a token that exists, and whose secret this computer does not have. `earlier` are the answers of
/// the configuration that exists.
pub(super) async fn refuse_unknown(
    client: &Client,
    answers: &Answers,
    earlier: Option<&Answers>,
    place: &Place,
    options: &InitOptions,
) -> Result<(), CliError> {
    let token = answers.token();
    let secret = place.secret(token);
    if options.renew || secret.exists() {
        return Ok(());
    }
    let users = client.users().await;
    let users = users.map_err(|error| failed(client.fault(&error).text))?;
    let Some(TakenToken { token, free }) = taken_token(token, &users) else { return Ok(()) };
    let is_configured = earlier.is_some_and(|earlier| earlier.token() == token);
    let replace = if is_configured { " --replace" } else { "" };
    let renew = match is_configured {
        false => "--renew".to_owned(),
        true => renewal(client.login(), place, options),
    };
    Err(failed(format!(
        "{token} exists on the cluster, and its secret is not on this computer: {} is missing, and Proxmox \
         shows a secret once; nothing was written or made\n\
         \x20 Another drover may use this token. Run the same command again with a token for this one:\n\
         \x20   --token {}{replace}\n\
         \x20 Where no other drover uses it, give it a new secret. The old secret ends at once, and a drover \
         that has it is locked out{}:\n\
         \x20   {renew}",
        secret.display(),
        quote(&free),
        if is_configured { ". Type instead" } else { ". Run the same command again with" },
    )))
}

/// The command that renews the secret of a token that the YAML names.
fn renewal(user: &str, place: &Place, options: &InitOptions) -> String {
    let named = |path: &std::path::Path| quote(&path.display().to_string());
    let config = match place.is_usual() {
        true => String::new(),
        false => format!(" --config {}", named(&place.config())),
    };
    let file = options.password_file.as_deref();
    let file = file.map(|file| format!(" --password-file {}", named(file))).unwrap_or_default();
    let user = quote(user);
    format!("drover{config} setup rights --cloud primary --renew --user {user}{file}")
}
