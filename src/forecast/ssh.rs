//! Logins to simulated guests, without SSH. A guest can be logged in to when it runs at that address,
//! has booted, and shows the key it should.

use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::ports::{Greeting, ShellTarget};
use tokio::time::sleep;

use crate::guests::Guests;

/// How long a login takes.
pub const LOGIN: Duration = Duration::from_millis(300);
/// How long a change of the keys in a guest takes, from when they are read until they are written.
pub const CHANGE: Duration = Duration::from_millis(100);

/// That no guest answers.
pub fn silent(text: &str) -> Fault {
    Fault::new(FaultKind::Unreachable, Culprit::Guest, text)
}

/// The guest at an address, and its host key, once it can be logged in to, which takes so long; `hears`
/// says which guests answer.
///
/// # Errors
/// `Unreachable` while nobody answers, `Impostor` where another key is shown.
pub async fn login(
    guests: &dyn Guests,
    target: &ShellTarget,
    (takes, limit): (Duration, Duration),
    hears: impl Fn(u32) -> bool,
) -> Result<(u32, String), Fault> {
    sleep(takes.min(limit)).await;
    let Some(vmid) = guests.at(target.address).filter(|vmid| hears(*vmid)) else {
        sleep(limit.saturating_sub(takes)).await;
        return Err(silent("nobody answers"));
    };
    let key = guests.host_key(vmid).ok_or_else(|| silent("connection refused"))?;
    if !target.host_keys.is_empty() && !target.host_keys.iter().any(|known| same(known, &key)) {
        return Err(Fault::new(FaultKind::Impostor, Culprit::Guest, "another host key"));
    }
    Ok((vmid, key))
}

/// What a guest shows of itself at a login.
pub fn greeting(guests: &dyn Guests, (vmid, host_key): (u32, String)) -> Greeting {
    Greeting { host_key, cards: guests.mac(vmid).into_iter().collect() }
}

/// Whether an SSH server answers at an address.
///
/// # Errors
/// `Unreachable` when none does within the limit.
pub async fn probe(
    guests: &dyn Guests,
    target: &ShellTarget,
    limit: Duration,
    hears: impl Fn(u32) -> bool,
) -> Result<(), Fault> {
    let there = guests.at(target.address);
    if there.is_some_and(|vmid| hears(vmid) && guests.host_key(vmid).is_some()) {
        return Ok(());
    }
    sleep(limit).await;
    Err(silent("nobody answers"))
}

/// Whether two public key lines hold the same key.
fn same(one: &str, other: &str) -> bool {
    one.split(' ').take(2).eq(other.split(' ').take(2))
}
