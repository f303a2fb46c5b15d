//! The members of a store, as the leader lists them, and how one hands the lead to another.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use drover_api::{MembersOut, Problem, TransferIn, TransferOut};

use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::state::State;

/// The longest name of a member that is read.
const NAME_MAX: usize = 253;

#[utoipa::path(
    get, path = "/v1/members",
    responses(
        (status = 200, body = MembersOut),
        (status = 404, body = Problem, description = "this drover stands alone")
    )
)]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<MembersOut>, Rejection> {
    let members = (state.doors.members)();
    members.map(web::Json).ok_or_else(|| {
        Rejection::not_found("this drover stands alone: `service.store` names no store")
    })
}

/// Hands the lead to another member.
#[utoipa::path(
    post, path = "/v1/members/transfer", request_body = TransferIn,
    responses(
        (status = 202, body = TransferOut, description = "this member hands over"),
        (status = 409, body = Problem, description = "the member cannot lead, or there is no other")
    )
)]
pub(super) async fn transfer(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<TransferIn>::parse(body)?;
    fields.text("to", NAME_MAX);
    let TransferIn { to } = fields.finish()?;
    let detail = (state.doors.transfer)(to).await.map_err(|why| {
        let title = "the lead cannot be handed over";
        Rejection::new(StatusCode::CONFLICT, "conflict", title, why)
    })?;
    state.report_order(&caller, format!("asked for another leader: {detail}"));
    Ok(HttpResponse::Accepted().json(TransferOut { detail }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use reqwest::Method;

    use crate::testing::{Served, members};

    const PATH: &str = "/v1/members/transfer";

    // Invariant: a member hands over to who can lead, and a drover without members has none.

    #[tokio::test]
    async fn a_leader_lists_the_members_and_hands_over() {
        let served = Served::leading();
        let listed = served.call(Some("viewer"), Method::GET, "/v1/members", "").await;
        assert_eq!((listed.status, listed.body), (200, serde_json::to_value(members()).unwrap()));
        for (body, status, says) in [
            (r#"{"to": "b"}"#, 202, "member a hands over to b"),
            (r#"{"to": null}"#, 202, "member a hands over to b"),
            ("", 202, "member a hands over to b"),
            (r#"{"to": "z"}"#, 409, "unknown member `z`"),
            (r#"{"to": 3}"#, 400, "must be a text"),
            (r#"{"from": "a"}"#, 400, "from"),
        ] {
            let answer = served.admin(Method::POST, PATH, body).await;
            let text = answer.body.to_string();
            assert_eq!(answer.status, status, "{body}: {text}");
            assert!(text.contains(says), "{body}: {text}");
        }
        let refused = served.call(Some("operator"), Method::POST, PATH, "").await;
        assert_eq!(refused.status, 403);
        served.stop().await;
    }

    #[tokio::test]
    async fn a_drover_that_stands_alone_says_so() {
        let served = Served::default();
        let listed = served.admin(Method::GET, "/v1/members", "").await;
        assert_eq!(listed.status, 404);
        assert_eq!(
            listed.body["detail"],
            "this drover stands alone: `service.store` names no store"
        );
        assert_eq!(served.admin(Method::POST, PATH, "").await.status, 409);
        served.stop().await;
    }
}
