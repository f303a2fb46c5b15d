//! Bodies of requests that are not taken, over a real socket.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use reqwest::Method;
use serde_json::json;

use crate::house::BODY_LIMIT;
use crate::testing::Served;

// Invariant: a body that is not taken reaches nobody, and the answer names each fault with its field.

#[tokio::test]
async fn every_fault_of_a_body_is_reported_with_its_field() {
    let served = Served::default();
    let body = json!({
        "template": "t", "labels": ["l"], "ttlSeconds": 0, "owner": "two\nlines",
        "sshPublicKey": "ssh-dss AAAA", "userData": "", "lables": [],
        "overrides": {"cores": 0, "memoryMb": "4g", "disk": 10},
    });
    let answer = served.admin(Method::POST, "/v1/leases", &body.to_string()).await;
    assert_eq!((answer.status, answer.kind.as_str()), (400, "application/problem+json"));
    let faults: Vec<_> = answer.body["errors"].as_array().unwrap().iter().collect();
    let lines: Vec<_> = faults
        .iter()
        .map(|fault| {
            format!("{}: {}", fault["field"].as_str().unwrap(), fault["detail"].as_str().unwrap())
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    labels: cannot be given with `template`; leave one of them out
    ttlSeconds: must be a whole number from 1 to 86400, and is 0
    owner: must be 1 to 255 characters on one line
    sshPublicKey: must begin with its type, one of ssh-ed25519, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384, ecdsa-sha2-nistp521, ssh-rsa, sk-ssh-ed25519@openssh.com, sk-ecdsa-sha2-nistp256@openssh.com, and begins with `ssh-dss`
    userData: must have 1 to 65536 bytes, and has 0
    overrides.cores: must be a whole number from 1 to 4294967295, and is 0
    overrides.disk: is not known; known are cores, memoryMb, diskSizeGb
    overrides.memoryMb: must be a whole number from 1 to 4294967295, and is a text
    lables: is not known; did you mean `labels`?
    ");
    assert!(served.asks.lock().unwrap().is_empty());
    served.stop().await;
}

#[tokio::test]
async fn bodies_that_are_none_are_refused() {
    let served = Served::default();
    let large = format!(r#"{{"owner": "{}"}}"#, "x".repeat(8 * BODY_LIMIT));
    for (body, status, part) in [
        ("{", 400, "the body is not JSON"),
        (r#"{"labels":["nope"],"labels":["linux"]}"#, 400, "the key `labels` is there twice"),
        ("[]", 400, "must be a JSON object"),
        ("{}", 400, "`template` is missing, and so is `labels`"),
        (r#"{"labelExpression": "a &&"}"#, 400, "at character 5 of the label expression: the end"),
        (
            r#"{"labelExpression": "a", "labels": ["b"]}"#,
            400,
            "`labelExpression` cannot be given with `labels`",
        ),
        (
            r#"{"template": "linux", "owner": "ab\u202edc"}"#,
            400,
            "`owner` must not have U+202E, which steers the text around it",
        ),
        (r#"{"template": "nope"}"#, 422, "known are lab/linux"),
        (&large, 413, "at most 524288 bytes"),
    ] {
        let answer = served.admin(Method::POST, "/v1/leases", body).await;
        let detail = answer.body["detail"].as_str().unwrap();
        assert_eq!(answer.status, status, "{detail}");
        assert!(detail.contains(part), "{detail}");
        assert_eq!(answer.body["status"], status);
    }
    served.stop().await;
}
