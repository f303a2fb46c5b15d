//! Tests of the channels of notifications.

use actix_web::web;
use drover_actors::message::Refusal;
use drover_api::{NotifyTestIn, NotifyTestOut, NotifyTestsOut, Problem};
use drover_notify::{Delivered, Tested};

use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::state::State;

/// The longest name of a channel.
const NAME_MAX: usize = 40;

type Body = Result<web::Bytes, actix_web::Error>;

/// Sends a test message, and answers what the other side said.
#[utoipa::path(
    post, path = "/v1/notify/test", request_body = NotifyTestIn,
    responses(
        (status = 200, body = NotifyTestsOut, description = "what the other sides said, also where they refused"),
        (status = 404, body = Problem, description = "there is no such channel, or none at all"),
    )
)]
pub(super) async fn test(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<NotifyTestsOut>, Rejection> {
    let mut fields = Fields::<NotifyTestIn>::parse(body)?;
    fields.text("channel", NAME_MAX);
    let NotifyTestIn { channel } = fields.finish()?;
    let unknown = |text: String| Rejection::refused(Refusal::Unknown(text));
    let tested = (state.doors.test_notify)(channel.clone()).await;
    let tested = tested.ok_or_else(|| {
        let name = channel.as_deref().unwrap_or_default();
        unknown(format!("no channel `{name}` is in `service.notify` of the configuration"))
    })?;
    if tested.is_empty() {
        let text = "no channel is configured: add one to `service.notify`";
        return Err(unknown(text.to_owned()));
    }
    let which = channel.map_or_else(|| "all channels".to_owned(), |name| format!("channel {name}"));
    state.report_order(&caller, format!("sent a test message over {which}"));
    Ok(web::Json(NotifyTestsOut { channels: tested.into_iter().map(shown).collect() }))
}

fn shown(Tested { channel, via, result }: Tested) -> NotifyTestOut {
    let (taken, answer) = match result {
        Ok(Delivered { answer, refused: None }) => (true, answer),
        Ok(Delivered { answer, refused: Some(why) }) => (false, format!("{answer}; {why}")),
        Err(failure) => (false, failure.text),
    };
    NotifyTestOut { channel, via: via.to_owned(), taken, answer }
}
