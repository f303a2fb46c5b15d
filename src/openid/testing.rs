//! A provider with made-up answers, for what no real one does: wrong tokens, wrong documents, silence. Faked
//! after OpenID Connect Core 1.0 (incorporating errata set 2) and Discovery 1.0; tests of the tier `wire` log in
//! at a real one.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proxmox_client::Tls;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Settings;

/// The client that it knows.
pub const CLIENT: &str = "drover";
/// That client's secret.
pub const SECRET: &str = "the secret of:the client";

/// A key of P-256 with a name.
pub struct SigningKey {
    pub id: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub fn new(id: &str) -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap();
        Self { id: id.to_owned(), pair }
    }

    /// The key as it is published.
    pub fn published(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig",
            "x": part(&point[1..33]), "y": part(&point[33..]),
        })
    }

    /// A token of these claims.
    pub fn token(&self, claims: &Value) -> String {
        let signed = parts(&json!({ "alg": "ES256", "kid": self.id }), claims);
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What is signed of a token.
pub fn parts(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// A call that came.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    pub head: String,
    pub body: String,
}

#[derive(Default)]
struct Script {
    answers: BTreeMap<String, (u16, String)>,
    calls: Vec<Call>,
}

/// A provider on this machine.
pub struct Fake {
    pub issuer: String,
    pub key: SigningKey,
    script: Arc<Mutex<Script>>,
}

impl Fake {
    /// One that knows its own document and key, and gives no token yet.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(Script::default()));
        let fake = Self { issuer, key: SigningKey::new("first"), script: Arc::clone(&script) };
        fake.answer("/.well-known/openid-configuration", 200, &fake.document());
        fake.answer("/keys", 200, &json!({ "keys": [fake.key.published()] }));
        fake.answer("/token", 400, &json!({ "error": "invalid_grant" }));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answered(stream, Arc::clone(&script)));
            }
        });
        fake
    }

    pub fn document(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/auth"),
            "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"),
            "userinfo_endpoint": at("/me"),
        })
    }

    /// What it answers at a path from now on.
    pub fn answer(&self, path: &str, status: u16, body: &Value) {
        self.answer_text(path, status, &body.to_string());
    }

    pub fn answer_text(&self, path: &str, status: u16, body: &str) {
        self.script.lock().unwrap().answers.insert(path.to_owned(), (status, body.to_owned()));
    }

    /// Gives this token for every code.
    pub fn gives(&self, token: &str) {
        self.answer(
            "/token",
            200,
            &json!({
                "id_token": token, "access_token": "access", "token_type": "Bearer",
            }),
        );
    }

    /// The claims of a right token.
    pub fn claims(&self, nonce: &str, now: i64) -> Value {
        json!({
            "iss": self.issuer, "aud": CLIENT, "sub": "1", "nonce": nonce, "iat": now, "exp": now + 300,
        })
    }

    /// The calls that came to a path.
    pub fn calls(&self, path: &str) -> Vec<Call> {
        let script = self.script.lock().unwrap();
        script.calls.iter().filter(|call| call.path == path).cloned().collect()
    }

    /// What a drover has to know of it that people reach at `base`.
    pub fn settings(&self, base: &str) -> Settings {
        settings(&self.issuer, base)
    }
}

/// What a drover has to know of a provider that people reach at `base`.
pub fn settings(issuer: &str, base: &str) -> Settings {
    Settings {
        issuer: issuer.to_owned(),
        client_id: CLIENT.to_owned(),
        client_secret: SecretString::from(SECRET),
        redirect: format!("{base}{}", crate::CALLBACK),
        scopes: vec!["profile".to_owned()],
        user_claim: "preferred_username".to_owned(),
        groups_claim: "groups".to_owned(),
        tls: Tls::System,
    }
}

/// Answers one call; a path without an answer is answered never.
async fn answered(mut stream: TcpStream, script: Arc<Mutex<Script>>) {
    let mut read = Vec::new();
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&read);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    };
    let path = head.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let answer = {
        let mut script = script.lock().unwrap();
        script.calls.push(Call { path: path.clone(), head, body });
        script.answers.get(&path).cloned()
    };
    let Some((status, body)) = answer else { return std::future::pending().await };
    let head = format!(
        "HTTP/1.1 {status} Made up\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    // Who asked may be gone.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}
