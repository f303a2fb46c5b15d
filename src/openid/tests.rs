//! Tokens and calls, each with one thing that is wrong.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use ring::hmac;
use serde_json::{Value, json};

use crate::fault::{Fault, TokenFault};
use crate::keys::Keys;
use crate::testing::{CLIENT, Fake, SigningKey, parts};
use crate::token::{Claims, Expected, SKEW_SECS, check};
use crate::{ANSWER_BYTES_MAX, Attempt, KEYS_PAUSE, Person, Provider};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const NOW: i64 = 1_795_000_000;
const ISSUER: &str = "https://id.example.com";
const EXPECTED: Expected<'_> = Expected { issuer: ISSUER, client: CLIENT, nonce: "n", now: NOW };

fn right() -> Value {
    json!({ "iss": ISSUER, "aud": CLIENT, "sub": "1", "nonce": "n", "iat": NOW, "exp": NOW + 300 })
}

fn keys(all: &[Value]) -> Keys {
    Keys::read(json!({ "keys": all }).to_string().as_bytes()).unwrap()
}

/// What comes of a right token with some claims changed; `null` takes one out.
fn changed(changes: Value) -> Result<Claims, TokenFault> {
    let key = SigningKey::new("k");
    let mut claims = right();
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    check(&key.token(&claims), &keys(&[key.published()]), EXPECTED)
}

// Invariant: a token counts only with the provider's signature, for this client and login, in its time.

#[test]
fn a_right_token_counts_and_each_wrong_claim_is_refused() {
    assert_eq!(changed(json!({})).unwrap()["sub"], "1");
    let other = "https://evil.example.com";
    for (change, fault) in [
        (json!({ "iss": other }), TokenFault::Issuer(other.to_owned())),
        (json!({ "iss": format!("{ISSUER}/") }), TokenFault::Issuer(format!("{ISSUER}/"))),
        (json!({ "iss": null }), TokenFault::Missing("iss")),
        (json!({ "aud": "other" }), TokenFault::Audience("`other`".to_owned())),
        (json!({ "aud": ["a", "b"] }), TokenFault::Audience("`a`, `b`".to_owned())),
        (json!({ "aud": [] }), TokenFault::Audience(String::new())),
        (json!({ "aud": null }), TokenFault::Missing("aud")),
        (json!({ "aud": [CLIENT, 5] }), TokenFault::Missing("aud")),
        (json!({ "aud": [CLIENT, "other"] }), TokenFault::NoParty),
        (json!({ "azp": "other" }), TokenFault::Party("other".to_owned())),
        (json!({ "azp": 5 }), TokenFault::Missing("azp")),
        (json!({ "exp": NOW - SKEW_SECS }), TokenFault::Expired(60)),
        (json!({ "exp": null }), TokenFault::Missing("exp")),
        (json!({ "exp": "soon" }), TokenFault::Missing("exp")),
        (json!({ "iat": NOW + SKEW_SECS + 1 }), TokenFault::Early(61)),
        (json!({ "iat": null }), TokenFault::Missing("iat")),
        (json!({ "nbf": NOW + SKEW_SECS + 1 }), TokenFault::Early(61)),
        (json!({ "nonce": "m" }), TokenFault::Nonce),
        (json!({ "nonce": null }), TokenFault::Nonce),
        (json!({ "sub": "" }), TokenFault::Missing("sub")),
        (json!({ "sub": null }), TokenFault::Missing("sub")),
    ] {
        assert_eq!(changed(change.clone()), Err(fault), "{change}");
    }
}

#[test]
fn clocks_may_differ_a_little_and_audiences_may_be_several() {
    for change in [
        json!({ "exp": NOW - SKEW_SECS + 1 }),
        json!({ "iat": NOW + SKEW_SECS, "nbf": NOW + SKEW_SECS }),
        json!({ "exp": 1_795_000_300.5 }),
        json!({ "aud": [CLIENT] }),
        json!({ "aud": ["other", CLIENT], "azp": CLIENT }),
        json!({ "azp": CLIENT }),
    ] {
        assert!(changed(change.clone()).is_ok(), "{change}");
    }
}

#[test]
fn a_signature_is_by_the_providers_key_or_none() {
    let (key, other) = (SigningKey::new("k"), SigningKey::new("k"));
    let token = key.token(&right());
    let of = |token: &str, all: &[Value]| check(token, &keys(all), EXPECTED).map(drop);
    assert_eq!(of(&token, &[key.published()]), Ok(()));
    assert_eq!(of(&token, &[other.published()]), Err(TokenFault::Signature));
    // A key of that name among others of it: a name alone does not say which key is meant.
    assert_eq!(of(&token, &[other.published(), key.published()]), Ok(()));
    let unknown = || Err(TokenFault::UnknownKey("k".to_owned()));
    assert_eq!(of(&token, &[]), unknown());
    for (name, value) in [
        ("use", json!("enc")),
        ("alg", json!("ES384")),
        ("crv", json!("P-384")),
        ("kty", json!("oct")),
        ("kid", json!("other")),
        ("x", json!("AAAA")),
        ("y", json!("?")),
    ] {
        let mut published = key.published();
        published[name] = value;
        assert_eq!(of(&token, &[published]), unknown(), "{name}");
    }
    // Other claims below the same signature.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut claims = right();
    claims["sub"] = "2".into();
    let header = json!({ "alg": "ES256", "kid": "k" });
    let forged = format!("{}.{signature}", parts(&header, &claims));
    assert_eq!(of(&forged, &[key.published()]), Err(TokenFault::Signature));
    for malformed in ["", ".", "..", "a.b.c", signed, &format!("{token}.x"), &format!("{token}?")] {
        let fault = of(malformed, &[key.published()]).unwrap_err();
        assert!(matches!(fault, TokenFault::Shape(_)), "{malformed}: {fault}");
    }
    let long = format!("{}.{signature}", "a".repeat(64 * 1024));
    assert_eq!(of(&long, &[key.published()]), Err(TokenFault::Shape("it is too long")));
}

#[test]
fn no_token_chooses_a_weaker_proof_for_itself() {
    let key = SigningKey::new("k");
    let published = key.published();
    let of = |token: &str| check(token, &keys(std::slice::from_ref(&published)), EXPECTED);
    for none in ["none", "None", "NONE", "nOnE"] {
        let unsigned = format!("{}.", parts(&json!({ "alg": none, "kid": "k" }), &right()));
        assert_eq!(of(&unsigned), Err(TokenFault::Algorithm(none.to_owned())));
    }
    // The published key as the shared secret of a MAC, in each form that somebody could take it.
    let point = [published["x"].as_str().unwrap(), published["y"].as_str().unwrap()];
    let point =
        [vec![4], point.map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).concat()].concat();
    for secret in [point, published.to_string().into_bytes(), Vec::new()] {
        let signed = parts(&json!({ "alg": "HS256", "kid": "k" }), &right());
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac));
        assert_eq!(of(&token), Err(TokenFault::Algorithm("HS256".to_owned())));
    }
    // A header that says RSA does not make a key of P-256 one.
    let token = key.token(&right());
    let (_, signature) = token.rsplit_once('.').unwrap();
    let signed = parts(&json!({ "alg": "RS256", "kid": "k" }), &right());
    let unknown = TokenFault::UnknownKey("k".to_owned());
    assert_eq!(of(&format!("{signed}.{signature}")), Err(unknown));
    let signed = parts(&json!({ "alg": "ES256", "kid": "k", "crit": ["exp"] }), &right());
    assert!(matches!(of(&format!("{signed}.{signature}")), Err(TokenFault::Shape(_))));
}

#[test]
fn a_signature_by_rsa_is_proven_as_in_the_standard() {
    // RFC 7515, appendix A.2.
    let modulus = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEz\
                   P1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf6\
                   3kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5Zw\
                   Kh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRW\
                   yuXpoQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5Y\
                     Kt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6x\
                     BArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6\
                     BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_I\
                     oypGlUPQGe77Rw";
    let claims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290\
                  Ijp0cnVlfQ";
    let token = format!("eyJhbGciOiJSUzI1NiJ9.{claims}.{signature}");
    let key = json!({ "kty": "RSA", "n": modulus, "e": "AQAB" });
    let of = |token: &str, key: &Value| check(token, &keys(std::slice::from_ref(key)), EXPECTED);
    // The signature is right, and so the claims are looked at.
    assert_eq!(of(&token, &key), Err(TokenFault::Issuer("joe".to_owned())));
    let forged = token.replace(".eyJpc3M", ".eyJpc3N");
    assert_eq!(of(&forged, &key), Err(TokenFault::UnknownKey(String::new())));
    // A key of 1024 bits proves nothing.
    let short = json!({ "kty": "RSA", "n": &modulus[..171], "e": "AQAB" });
    assert_eq!(keys(&[short]).count(), 0);
}

fn attempt() -> Attempt {
    let text = |of: &str| of.to_owned();
    Attempt { state: text("s"), nonce: text("n"), verifier: text("v") }
}

async fn started() -> (Fake, Provider) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let fake = Fake::start().await;
    let provider = Provider::new(fake.settings("https://drover.example.com"));
    (fake, provider)
}

/// Gives a right token with these claims, too.
fn gives(fake: &Fake, key: &SigningKey, more: Value) {
    let mut claims = fake.claims("n", NOW);
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    fake.gives(&key.token(&claims));
}

fn person(name: &str, groups: &[&str]) -> Person {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Person { name: name.to_owned(), groups: Some(groups) }
}

// Invariant: a login asks the provider for what it needs, and once.

#[tokio::test]
async fn a_login_leads_to_the_provider_and_its_code_to_a_person() {
    let (fake, provider) = started().await;
    let url = provider.begin(&attempt()).await.unwrap();
    let query: std::collections::BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    let asked = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!(url.path(), "/auth");
    assert_eq!(asked("response_type"), "code");
    assert_eq!(asked("scope"), "openid profile");
    assert_eq!(asked("redirect_uri"), "https://drover.example.com/login/openid/callback");
    assert_eq!((asked("state"), asked("nonce")), ("s", "n"));
    assert_eq!(asked("code_challenge_method"), "S256");
    assert_eq!(asked("code_challenge"), attempt().challenge());
    assert!(!url.as_str().contains("=v&") && !url.as_str().ends_with("=v"), "{url}");

    gives(&fake, &fake.key, json!({ "preferred_username": "ann", "groups": ["ci"] }));
    let found = provider.finish(&attempt(), ("c0de", None), NOW).await.unwrap();
    assert_eq!(found, person("ann", &["ci"]));
    let call = fake.calls("/token").pop().unwrap();
    let form: std::collections::BTreeMap<_, _> =
        form_urlencoded::parse(call.body.as_bytes()).into_owned().collect();
    assert_eq!((&*form["code"], &*form["code_verifier"]), ("c0de", "v"));
    assert_eq!(form["redirect_uri"], "https://drover.example.com/login/openid/callback");
    // `drover` and the secret as a form spells them.
    let login =
        base64::engine::general_purpose::STANDARD.encode("drover:the+secret+of%3Athe+client");
    assert!(call.head.contains(&format!("Basic {login}")), "{}", call.head);
    assert!(fake.calls("/me").is_empty(), "the token said all");
    provider.finish(&attempt(), ("c0de", Some(&fake.issuer)), NOW).await.unwrap();
    assert_eq!(fake.calls("/.well-known/openid-configuration").len(), 1);
    assert_eq!(fake.calls("/keys").len(), 1);
}

#[tokio::test]
async fn what_the_token_does_not_say_userinfo_does_for_the_same_person() {
    let (fake, provider) = started().await;
    gives(&fake, &fake.key, json!({ "preferred_username": "ann" }));
    fake.answer("/me", 200, &json!({ "sub": "1", "preferred_username": "eve", "groups": ["ci"] }));
    let found = provider.finish(&attempt(), ("c", None), NOW).await.unwrap();
    assert_eq!(found, person("ann", &["ci"]), "what is signed counts first");
    gives(&fake, &fake.key, json!({ "preferred_username": "ann", "groups": null }));
    let found = provider.finish(&attempt(), ("c", None), NOW).await.unwrap();
    assert_eq!(found, person("ann", &["ci"]), "a claim without a value hides nothing");
    fake.answer("/me", 200, &json!({ "sub": "2", "groups": ["admins"] }));
    let fault = provider.finish(&attempt(), ("c", None), NOW).await.unwrap_err();
    assert_eq!(fault, Fault::Token(TokenFault::Person));
    fake.answer("/me", 200, &json!({ "sub": "1" }));
    let found = provider.finish(&attempt(), ("c", None), NOW).await.unwrap();
    assert_eq!(found.groups, None);
}

#[tokio::test]
async fn another_issuers_answer_is_not_this_ones() {
    let (fake, provider) = started().await;
    gives(&fake, &fake.key, json!({ "preferred_username": "ann", "groups": [] }));
    let evil = Some("https://evil.example.com");
    let fault = provider.finish(&attempt(), ("c", evil), NOW).await.unwrap_err();
    assert!(matches!(fault, Fault::Token(TokenFault::Issuer(_))), "{fault}");
    assert!(fake.calls("/token").is_empty(), "the code goes nowhere");
    let mut document = fake.document();
    document["authorization_response_iss_parameter_supported"] = true.into();
    fake.answer("/.well-known/openid-configuration", 200, &document);
    let provider = Provider::new(fake.settings("https://drover.example.com"));
    let fault = provider.finish(&attempt(), ("c", None), NOW).await.unwrap_err();
    assert_eq!(fault, Fault::Token(TokenFault::Missing("iss")));
}

// Invariant: a provider that changes its keys is followed, and nobody makes drover ask it without end.

#[tokio::test]
async fn an_unknown_key_makes_drover_read_the_keys_again_and_not_at_once_again() {
    let (fake, provider) = started().await;
    let claims = json!({ "preferred_username": "ann", "groups": [] });
    gives(&fake, &fake.key, claims.clone());
    provider.finish(&attempt(), ("c", None), NOW).await.unwrap();
    let second = SigningKey::new("second");
    fake.answer("/keys", 200, &json!({ "keys": [fake.key.published(), second.published()] }));
    gives(&fake, &second, claims);
    let unknown = Fault::Token(TokenFault::UnknownKey("second".to_owned()));
    for _ in 0..5 {
        let fault = provider.finish(&attempt(), ("c", None), NOW).await.unwrap_err();
        assert_eq!(fault, unknown, "it read them a moment ago");
    }
    assert_eq!(fake.calls("/keys").len(), 1);
    tokio::time::pause();
    tokio::time::advance(KEYS_PAUSE).await;
    tokio::time::resume();
    provider.finish(&attempt(), ("c", None), NOW).await.unwrap();
    assert_eq!(fake.calls("/keys").len(), 2);
}

// Invariant: whatever a provider answers, a login ends soon, with words for a person.

#[tokio::test]
async fn a_provider_that_is_wrong_is_named_with_what_it_did() {
    let document = "/.well-known/openid-configuration";
    let after = async |change: &dyn Fn(&Fake)| {
        let (fake, provider) = started().await;
        gives(&fake, &fake.key, json!({ "preferred_username": "ann", "groups": [] }));
        change(&fake);
        let fault = provider.finish(&attempt(), ("c", None), NOW).await.unwrap_err();
        assert!(!fault.help().is_empty());
        (fault.to_string().replace(&fake.issuer, "ISSUER"), fault)
    };
    let (text, fault) = after(&|fake| fake.answer(document, 503, &json!({}))).await;
    assert_eq!(text, format!("the provider answered ISSUER{document} with status 503"));
    assert!(fault.is_of_provider());
    let (text, _) = after(&|fake| fake.answer_text(document, 200, "<html>")).await;
    assert!(text.starts_with("the provider's discovery document has not what it needs"), "{text}");
    let large = "x".repeat(ANSWER_BYTES_MAX + 1);
    let (text, _) = after(&|fake| fake.answer_text("/keys", 200, &large)).await;
    assert_eq!(text, "the provider answered ISSUER/keys with more than 524288 bytes");
    let (text, fault) = after(&|fake| fake.answer("/keys", 200, &json!({ "keys": [] }))).await;
    assert!(text.ends_with("publishes no key `first` that could have signed it"), "{text}");
    assert!(!fault.is_of_provider());
    let refusal = json!({ "error": "invalid_client", "error_description": "no\r\nsuch client" });
    let (text, fault) = after(&|fake| fake.answer("/token", 401, &refusal)).await;
    assert_eq!(text, "the provider refused the login: invalid_client: no  such client");
    assert!(fault.help().contains("clientId"));
    let (text, _) = after(&|fake| fake.answer("/token", 302, &json!({}))).await;
    assert_eq!(text, "the provider answered ISSUER/token with status 302");
    let (text, _) = after(&|fake| fake.answer("/token", 200, &json!({ "id_token": 5 }))).await;
    assert!(text.contains("/token with something else than was asked"), "{text}");
}

#[tokio::test]
async fn a_provider_that_is_away_is_asked_once_for_many_logins() {
    let (fake, _) = started().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let issuer = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let settings = crate::Settings { issuer: issuer.clone(), ..fake.settings("https://d") };
    let provider = Provider::new(settings);
    let attempt = attempt();
    let faults = [provider.begin(&attempt).await, provider.begin(&attempt).await];
    for fault in faults {
        let fault = fault.unwrap_err();
        let text = fault.to_string();
        assert!(
            text.starts_with(&format!("the provider did not answer {issuer}/.well-known")),
            "{text}"
        );
        assert!(fault.help().contains("drover doctor"));
    }
}

#[tokio::test]
async fn a_silent_provider_holds_a_login_for_seconds_and_others_not_at_all_longer() {
    let (fake, provider) = started().await;
    // What it has no answer for, it answers never.
    let mut document = fake.document();
    document["token_endpoint"] = format!("{}/silence", fake.issuer).into();
    fake.answer("/.well-known/openid-configuration", 200, &document);
    provider.begin(&attempt()).await.unwrap();
    let attempt = attempt();
    tokio::time::pause();
    let fault = provider.finish(&attempt, ("c", None), NOW).await.unwrap_err();
    let text = fault.to_string();
    assert!(text.ends_with("/silence: no whole answer came within 10 s"), "{text}");
}

#[tokio::test]
async fn the_doctor_learns_what_of_a_provider_fails() {
    let (fake, provider) = started().await;
    fake.answer_text("/auth", 200, "<html>");
    let found = provider.examine().await.unwrap();
    assert_eq!((found.keys, found.client, found.login), (Ok(1), Ok(()), Ok(())));
    fake.answer("/token", 401, &json!({ "error": "invalid_client" }));
    fake.answer("/auth", 400, &json!({}));
    fake.answer("/keys", 200, &json!({}));
    let found = Provider::new(fake.settings("https://d")).examine().await.unwrap();
    assert!(found.client.unwrap_err().to_string().contains("invalid_client"));
    assert!(found.login.unwrap_err().to_string().ends_with("/auth with status 400"));
    assert!(found.keys.unwrap_err().to_string().contains("no set of keys"));
}

// Invariant: a logout leads to the address of the provider, which leads back to drover's login.

#[tokio::test]
async fn a_logout_leads_to_the_provider_where_it_has_an_address_for_it() {
    let fake = Fake::start().await;
    let provider = || Provider::new(fake.settings("https://d.example"));
    assert_eq!(provider().end().await.unwrap(), None);
    let mut document = fake.document();
    document["end_session_endpoint"] = format!("{}/end?kind=x", fake.issuer).into();
    fake.answer("/.well-known/openid-configuration", 200, &document);
    let url = provider().end().await.unwrap().unwrap();
    let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        query,
        [
            pair("kind", "x"),
            pair("client_id", "drover"),
            pair("post_logout_redirect_uri", "https://d.example/login"),
        ]
    );
}
