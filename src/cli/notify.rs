//! `drover notify`: tests of the channels over which drover sends what is wrong.

use drover_api::{NotifyTestIn, NotifyTestOut, NotifyTestsOut};

use super::client::{Client, LONG_LIMIT};
use super::error::CliError;
use super::report::FAILED;
use super::sentences::clean;
use super::term::{Term, print};

/// Sends test messages and prints what came of them.
pub(super) async fn test(
    client: &Client,
    channel: Option<String>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let step = term.live.step("drover sends a test message");
    let asked = NotifyTestIn { channel };
    let out: NotifyTestsOut = client.post("/v1/notify/test", &asked, LONG_LIMIT).await?;
    drop(step);
    print(term, json, &out, tested)?;
    Ok(if out.channels.iter().all(|one| one.taken) { 0 } else { FAILED })
}

fn tested(out: &NotifyTestsOut) -> String {
    let line = |NotifyTestOut { channel, via, taken, answer }: &NotifyTestOut| {
        let word = if *taken { "ok" } else { "FAIL" };
        format!("{word:<5} {:<16} {via:<8} {}\n", clean(channel), clean(answer))
    };
    out.channels.iter().map(line).collect()
}
