//! Checks the channels of `service.notify`: whether the other side answers, as far as no message shows it.
//! Nothing is sent.

use drover_ci::{Remedy, Severity};
use drover_notify::{Channel, probe};

use super::report::{ChannelReport, Line};

/// Looks at one channel.
pub async fn check_channel(channel: &Channel) -> ChannelReport {
    let place = format!("at the server, or in `service.notify` for {}", channel.name);
    let (severity, text, remedies) = match probe(channel).await {
        Ok(answer) => (Severity::Ok, answer, Vec::new()),
        Err(failure) => {
            let action = format!("put it right, then run `drover notify test {}`", channel.name);
            (Severity::Fail, failure.text, vec![Remedy::at(&place, &action)])
        }
    };
    let line = Line { severity, about: "server".to_owned(), text, remedies };
    ChannelReport {
        channel: channel.name.clone(),
        via: channel.via.word().to_owned(),
        lines: vec![line],
    }
}
