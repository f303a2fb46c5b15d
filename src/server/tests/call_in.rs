//! Guests that call in.

use super::*;

// Invariant: a guest is heard by its own token alone, and no answer shows what a right one is like.

#[tokio::test]
async fn a_guest_calls_with_its_own_token_and_nothing_else() {
    let served = Served::default();
    let call = async |body: &str| {
        let answer = served.call(None, Method::POST, "/v1/call-in", body).await;
        (answer.status, answer.body)
    };
    let (status, body) = call(r#"{"token": "token-of-a1"}"#).await;
    assert_eq!((status, &body["address"]), (200, &json!("127.0.0.1")), "where it called from");
    let (_, body) = call(r#"{"token": "token-of-a1", "addresses": ["10.0.0.5"]}"#).await;
    assert_eq!(body["address"], "10.0.0.5");
    for (body, wanted) in [
        (r#"{"token": "token-of-a2"}"#, 409),
        (r#"{"token": "wrong"}"#, 401),
        ("{}", 400),
        (r#"{"token": "token-of-a1", "addresses": ["here"]}"#, 400),
        (r#"{"token": "token-of-a1", "agent": "a1"}"#, 400),
    ] {
        let (status, answer) = call(body).await;
        assert_eq!(status, wanted, "{body}: {answer}");
        assert!(!answer.to_string().contains("token-of"), "{answer}");
    }
    for _ in 0..20 {
        call("{}").await;
    }
    assert_eq!(call(r#"{"token": "token-of-a1"}"#).await.0, 429);
    served.stop().await;
}
