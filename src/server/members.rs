//! The members of a store, as the leader lists them, how one hands the lead to another, and how one that is
//! gone for good leaves the list.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use drover_api::{MembersOut, Problem, TransferIn, TransferOut};

use super::auth::Caller;
use super::body::Fields;
use super::problem::{Rejection, printable};
use super::state::{NotForgotten, State};

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

/// Takes a member that is gone for good out of the list; one that starts again comes back by itself.
#[utoipa::path(
    delete, path = "/v1/members/{name}",
    params(("name" = String, Path, description = "the member")),
    responses(
        (status = 204, description = "it is no longer listed"),
        (status = 404, body = Problem, description = "there is no such member"),
        (status = 409, body = Problem, description = "it leads, or is live"),
        (status = 503, body = Problem, description = "the store does not answer")
    )
)]
pub(super) async fn forget(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    name: web::Path<String>,
) -> Result<HttpResponse, Rejection> {
    let name = name.into_inner();
    (state.doors.forget_member)(name.clone()).await.map_err(|why| match why {
        NotForgotten::Unknown(why) => Rejection::not_found(why),
        NotForgotten::Refused(why) => {
            let title = "the member cannot be forgotten";
            Rejection::new(StatusCode::CONFLICT, "conflict", title, why)
        }
        NotForgotten::Failed(why) => {
            let title = "the store does not answer";
            Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, why)
        }
    })?;
    state.report_order(&caller, format!("forgot member {}", printable(&name)));
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use reqwest::Method;

    use drover_model::fact::What;

    use crate::testing::{Served, members};
    use crate::view::Reported;

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
        assert_eq!(served.admin(Method::DELETE, "/v1/members/c", "").await.status, 404);
        served.stop().await;
    }

    #[tokio::test]
    async fn a_leader_takes_a_member_out_of_the_list_that_is_gone_and_says_who_asked() {
        let served = Served::leading();
        let mut events = served.view.events(None);
        for (name, status, says) in [
            ("c", 204, ""),
            ("a", 409, "member `a` leads"),
            ("nope", 404, "no member is called `nope`"),
            ("cut-off", 503, "no answer came"),
        ] {
            let path = format!("/v1/members/{name}");
            let answer = served.admin(Method::DELETE, &path, "").await;
            let text = answer.body.to_string();
            assert_eq!(answer.status, status, "{name}: {text}");
            assert!(text.contains(says), "{name}: {text}");
        }
        let refused = served.call(Some("operator"), Method::DELETE, "/v1/members/c", "").await;
        assert_eq!(refused.status, 403);
        let Some(Reported::Event(event)) = events.next().await else { panic!("no event") };
        let What::Ordered { by, order } = &event.fact.what else { panic!("{event:?}") };
        assert_eq!((&**order, by.contains("admin")), ("forgot member c", true), "{by}");
        served.stop().await;
    }
}
