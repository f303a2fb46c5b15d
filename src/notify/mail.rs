//! Mail: one message for all who get it. Who is refused by the server keeps nobody else from getting it.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use causes::chain;
use lettre::address::Address;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail as MailCommand, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use proxmox_client::Tls;
use tokio::time::timeout;

use super::carry::{Delivered, Failure, REST_LIMIT, in_time};
use super::message::Message;
use super::settings::{Mail, MailTls};
use super::words;

/// How long the connection to the server may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// An address of mail, with or without a name: `ops@example.com`, `Ops <ops@example.com>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailAddress(Mailbox);

impl FromStr for MailAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: lettre::address::AddressError| error.to_string())
    }
}

/// Whether a text is an address of mail.
pub fn is_address(text: &str) -> bool {
    text.parse::<MailAddress>().is_ok()
}

pub(super) async fn send(to: &Mail, message: &Message) -> Result<Delivered, Failure> {
    let written = written(to, message)?;
    let sending = async {
        let mut connection = connect(to).await?;
        let sent = hand_over(&mut connection, to, &written).await;
        Ok((connection, sent))
    };
    let (connection, sent) = in_time(sending).await?;
    quit(connection).await;
    sent
}

/// Ends a connection in order, where the server lets it end soon. The message is taken, or is not: what is said
/// after it changes nothing.
async fn quit(mut connection: AsyncSmtpConnection) {
    let _ = timeout(REST_LIMIT, connection.quit()).await;
}

/// Whether the server takes the login.
pub(super) async fn probe(to: &Mail) -> Result<String, Failure> {
    quit(in_time(connect(to)).await?).await;
    let how = match (&to.security, &to.login) {
        (MailTls::None, None) => "plain",
        (MailTls::None, Some(_)) => "plain, with the login",
        (MailTls::StartTls | MailTls::Tls, None) => "over TLS",
        (MailTls::StartTls | MailTls::Tls, Some(_)) => "over TLS, with the login",
    };
    Ok(format!("the server answers {how}; no mail was sent"))
}

/// The message as it goes over the line.
fn written(to: &Mail, message: &Message) -> Result<Vec<u8>, Failure> {
    let domain = to.from.0.email.domain();
    let milliseconds = u64::try_from(message.at.0).unwrap_or_default();
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    let mut builder = MessageBuilder::new()
        .from(to.from.0.clone())
        .subject(words::subject(message))
        .date(at)
        .message_id(Some(format!("<{}.{}@{domain}>", message.id, message.at.0 / 1000)))
        // No answers by programs, such as those of people on leave (RFC 3834).
        .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
        .header(ContentType::TEXT_PLAIN);
    for one in &to.to {
        builder = builder.to(one.0.clone());
    }
    let mail = builder.body(words::body(message));
    Ok(mail.map_err(|error| Failure::lasting(chain(&error)))?.formatted())
}

async fn connect(to: &Mail) -> Result<AsyncSmtpConnection, Failure> {
    let hello = ClientId::default();
    let tls = match to.security {
        MailTls::Tls | MailTls::StartTls => Some(parameters(to)?),
        MailTls::None => None,
    };
    let at_once = tls.clone().filter(|_| to.security == MailTls::Tls);
    let server = (to.host.as_str(), to.port);
    let opened =
        AsyncSmtpConnection::connect_tokio1(server, Some(CONNECT_LIMIT), &hello, at_once, None);
    let mut connection = opened.await.map_err(|error| failure("connection", &error))?;
    if let Some(tls) = tls.filter(|_| to.security == MailTls::StartTls) {
        if !connection.can_starttls() {
            let text = "the server does not offer STARTTLS: set `tls` to what it offers";
            return Err(Failure::lasting(text));
        }
        let encrypted = connection.starttls(tls, &hello).await;
        encrypted.map_err(|error| failure("STARTTLS", &error))?;
    }
    if let Some((user, password)) = &to.login {
        let login = Credentials::new(user.clone(), password.text().to_owned());
        let done = connection.auth(DEFAULT_MECHANISMS, &login).await;
        done.map_err(|error| failure("login", &error))?;
    }
    Ok(connection)
}

fn parameters(to: &Mail) -> Result<TlsParameters, Failure> {
    let builder = TlsParameters::builder(to.host.clone());
    let builder = match &to.tls {
        Tls::System => builder,
        Tls::Bundle(texts) => {
            let mut builder = builder.certificate_store(CertificateStore::None);
            for text in texts {
                let roots = Certificate::from_pem(text.as_bytes());
                builder =
                    builder.add_root_certificate(roots.map_err(|error| failure("TLS", &error))?);
            }
            builder
        }
        Tls::Pins(_) | Tls::Ignore => {
            return Err(Failure::lasting("a mail server is trusted by authorities alone"));
        }
    };
    builder.build_rustls().map_err(|error| failure("TLS", &error))
}

async fn hand_over(
    connection: &mut AsyncSmtpConnection,
    to: &Mail,
    written: &[u8],
) -> Result<Delivered, Failure> {
    let from: Address = to.from.0.email.clone();
    let accepted = connection.command(MailCommand::new(Some(from), Vec::new())).await;
    accepted.map_err(|error| failure("sender", &error))?;
    let mut refused = Vec::new();
    for one in &to.to {
        if let Err(error) = connection.command(Rcpt::new(one.0.email.clone(), Vec::new())).await {
            refused.push((one, failure(&format!("recipient {}", one.0.email), &error)));
        }
    }
    if refused.len() == to.to.len() {
        let is_final = refused.iter().all(|(_, failure)| failure.is_final);
        let texts: Vec<String> = refused.into_iter().map(|(_, failure)| failure.text).collect();
        return Err(Failure { is_final, ..Failure::passing(texts.join("; ")) });
    }
    connection.command(Data).await.map_err(|error| failure("data", &error))?;
    let taken = connection.message(written).await.map_err(|error| failure("message", &error))?;
    let answer: Vec<&str> = taken.message().collect();
    let texts: Vec<String> = refused.into_iter().map(|(_, failure)| failure.text).collect();
    Ok(Delivered {
        answer: format!("{} {}", taken.code(), answer.join(" ")),
        refused: Some(texts.join("; ")).filter(|text| !text.is_empty()),
    })
}

/// What failed, with the server's words.
fn failure(what: &str, error: &SmtpError) -> Failure {
    let text = format!("{what}: {}", chain(error));
    if error.is_permanent() { Failure::lasting(text) } else { Failure::passing(text) }
}
