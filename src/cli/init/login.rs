//! The administrator's login: the password is asked again where it is wrong, and not too often.

use std::io::{self, Write as _};
use std::path::Path;

use drover_config::Environment;
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use proxmox_client::{Connection, Endpoint, Login, PveError, WireDialer};
use secrecy::SecretString;

use super::super::error::{CliError, failed};
use super::super::progress::Live;
use super::super::setup::{asks_password, password};
use super::super::term::shown;
use super::trust::Contact;

/// So many wrong passwords end the dialog.
const WRONG_MAX: u32 = 3;

/// Who sets drover up.
pub(super) struct Admin {
    pub user: String,
    pub secret: SecretString,
}

impl Admin {
    fn login(&self) -> Login {
        let (user, secret) = (self.user.clone(), self.secret.clone());
        match user.contains('!') {
            true => Login::Token { id: user, secret },
            false => Login::Password { username: user, secret },
        }
    }
}

/// Logs in; asks again for a wrong password where somebody typed it.
pub(super) async fn login(
    user: &str,
    file: Option<&Path>,
    (url, contact): (&Endpoint, &Contact),
    live: &Live,
) -> Result<(Admin, Client), CliError> {
    let environment = Environment::of_process();
    let asks = asks_password(&environment, file);
    let mut wrong = 0;
    loop {
        let secret = password(&environment, file, user)?;
        let admin = Admin { user: user.to_owned(), secret };
        let connection = Connection::new(vec![url.clone()], admin.login(), contact.tls.clone());
        let client = Client::new(CloudId::new("primary"), &connection, &WireDialer)
            .map_err(|error| failed(error.chain()))?;
        let step = live.step(&format!("logging in at {url}"));
        let answer = client.version().await;
        drop(step);
        let error = match answer {
            Ok(_) => return Ok((admin, client)),
            Err(error) => error,
        };
        let Some(why) = wrong_secret(&error) else { return Err(refused(&client, &error)) };
        let refusal = format!("{url} does not let {user} in: {why}");
        wrong += 1;
        if !asks {
            return Err(failed(format!(
                "{refusal}: check the password or secret (--password-file, or \
                 $DROVER_ADMIN_PASSWORD), and that the user is enabled; nothing was written"
            )));
        }
        if wrong == WRONG_MAX {
            return Err(failed(format!(
                "{refusal}. It was the wrong answer {WRONG_MAX} times: drover asks no more, because \
                 Proxmox may lock the account. Check the user (--user) and that it is enabled; nothing \
                 was written"
            )));
        }
        let again = format!("{refusal}. Type it again; Ctrl-C ends drover");
        writeln!(io::stderr(), "  {}", shown(&again))?;
    }
}

/// What Proxmox says of a wrong password or secret.
fn wrong_secret(error: &PveError) -> Option<&str> {
    match error {
        PveError::Refused { refusal, .. } => (refusal.status == 401).then_some(&refusal.text),
        PveError::SecondFactor(_)
        | PveError::Unreachable { .. }
        | PveError::Lost { .. }
        | PveError::Unsent { .. }
        | PveError::Shape { .. }
        | PveError::Setup { .. } => None,
    }
}

/// Why another password would not help.
fn refused(client: &Client, error: &PveError) -> CliError {
    let who = client.login();
    let text = match error {
        PveError::SecondFactor(_) => format!(
            "{who} needs a second factor, which drover cannot answer; nothing was written. On a node: \
             `pveum user token add {who} setup --privsep 0` shows a secret once; give --user \
             '{who}!setup' and that secret, and afterwards `pveum user token remove {who} setup`"
        ),
        PveError::Refused { .. }
        | PveError::Unreachable { .. }
        | PveError::Lost { .. }
        | PveError::Unsent { .. }
        | PveError::Shape { .. }
        | PveError::Setup { .. } => {
            format!("{}; nothing was written", client.fault(error).text)
        }
    };
    failed(text)
}
