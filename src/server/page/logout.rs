//! The way out: of drover, and of the provider where the configuration wants that.

use actix_web::{HttpRequest, HttpResponse, web};
use drover_openid::Fault;
use reqwest::Url;
use serde_json::json;
use tokio::time::timeout;

use super::login::{is_secure, put};
use super::openid::WAIT_LIMIT;
use crate::house::House;
use crate::openid::OpenId;
use crate::session::set_cookie;

/// Ends the session. Of somebody who logged in at the provider the answer says where they log out there.
pub(super) async fn leave(request: HttpRequest, house: web::Data<House>) -> HttpResponse {
    let auth = house.auth();
    let at_provider = match auth.openid() {
        Some(openid) if house.sessions.is_of_provider(request.headers(), openid) => {
            end_there(openid).await
        }
        Some(_) | None => None,
    };
    let mut answer = match at_provider {
        Some(place) => HttpResponse::Ok().json(json!({ "continueAt": place.as_str() })),
        None => HttpResponse::NoContent().finish(),
    };
    put(&mut answer, &set_cookie("", is_secure(request.headers())));
    answer
}

/// Where a person ends the provider's session too; none where that is not configured, or the provider does not
/// say it: drover's own session ends in any case.
async fn end_there(openid: &OpenId) -> Option<Url> {
    if !openid.ends_session {
        return None;
    }
    let place = timeout(WAIT_LIMIT, openid.provider.end()).await.unwrap_or(Err(Fault::Busy));
    match place {
        Ok(Some(place)) => Some(place),
        Ok(None) => {
            tracing::warn!(
                "the provider has no address at which people log out (end_session_endpoint)"
            );
            None
        }
        Err(fault) => {
            tracing::warn!(error = %fault, "a logout ends no session at the provider");
            None
        }
    }
}
