use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::record::Reason;
use drover_model::time::WallTime;
use drover_spans::Fold;

use super::*;

/// So many spans, each of an agent of its own.
fn spans(many: usize) -> Vec<Span> {
    let mut fold = Fold::new(WallTime(0));
    for number in 0..many {
        let what = What::AgentGone {
            agent: AgentId::new(format!("a{number}")),
            template: TemplateId::new(CloudId::new("lab"), "linux"),
            reason: Reason::Idle,
            phases: Vec::new(),
        };
        fold.observe(&Fact { at: WallTime(1), what });
    }
    fold.take()
}

fn later(after: Option<u64>) -> Answer {
    Answer::Later { why: "busy".to_owned(), after: after.map(Duration::from_secs) }
}

fn taken() -> Answer {
    Answer::Taken { warning: None }
}

fn silent() -> Option<Say> {
    Some(Say::Silent { why: "busy".to_owned() })
}

// Invariant: spans that come together go together, and one request is under way at a time.

#[test]
fn spans_wait_for_others_and_a_full_batch_goes_at_once() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    assert_eq!(outbox.due(), None);
    outbox.push(spans(1), now);
    outbox.push(spans(2), now + Duration::from_secs(1));
    assert_eq!(outbox.due(), Some(now + LINGER));
    assert_eq!(outbox.begin().len(), 3);
    outbox.push(spans(BATCH_SPANS + 1), now + LINGER);
    assert_eq!(outbox.due(), None, "a request is under way");
    let done = now + LINGER * 2;
    assert_eq!(outbox.answered(taken(), done), Outcome { sent: 3, ..Outcome::default() });
    assert_eq!(outbox.due(), Some(done));
    assert_eq!(outbox.begin().len(), BATCH_SPANS);
    outbox.answered(taken(), done);
    assert_eq!(outbox.due(), Some(done + LINGER));
    assert_eq!(outbox.begin().len(), 1);
    outbox.answered(taken(), done);
    assert!(outbox.is_empty() && outbox.due().is_none());
}

// Invariant: the same spans go again after a pause that doubles up to a limit, or that the collector asks for.

#[test]
fn what_may_be_sent_again_is_sent_again_after_a_pause() {
    let (mut outbox, mut now) = (Outbox::default(), Instant::now());
    outbox.push(spans(2), now);
    let first = outbox.begin();
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        outbox.answered(later(None), now);
        assert_eq!(outbox.due(), Some(now + Duration::from_secs(pause)));
        now += Duration::from_secs(pause);
        assert_eq!(outbox.begin(), first);
    }
    outbox.answered(later(Some(7)), now);
    assert_eq!(outbox.due(), Some(now + Duration::from_secs(7)));
    // New spans do not make it go sooner.
    outbox.push(spans(1), now);
    assert_eq!(outbox.due(), Some(now + Duration::from_secs(7)));
    assert_eq!(outbox.begin(), first);
    outbox.answered(taken(), now);
    outbox.push(spans(1), now);
    outbox.begin();
    outbox.answered(later(None), now);
    assert_eq!(outbox.due(), Some(now + PAUSE), "the pause starts again");
}

// Invariant: an outage is said once, and its end once with what was lost.

#[test]
fn an_outage_is_said_once_and_its_end_once() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    outbox.push(spans(2), now);
    outbox.begin();
    assert_eq!(outbox.answered(later(None), now).say, silent());
    for _ in 0..5 {
        outbox.begin();
        assert_eq!(outbox.answered(later(None), now).say, None);
    }
    let full = outbox.push(spans(WAITING_MAX + 3), now);
    assert_eq!(full, Outcome { dropped: 3, ..Outcome::default() });
    outbox.begin();
    let again = outbox.answered(taken(), now);
    assert_eq!(again.say, Some(Say::Again { lost: 3 }));
    outbox.begin();
    assert_eq!(outbox.answered(taken(), now).say, None);
}

#[test]
fn what_is_refused_is_dropped_and_counted() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let refused = || Answer::Refused { why: "no".to_owned() };
    outbox.push(spans(2), now);
    outbox.begin();
    let outcome = outbox.answered(refused(), now);
    let say = Some(Say::Refuses { why: "no".to_owned() });
    assert_eq!(outcome, Outcome { refused: 2, say, ..Outcome::default() });
    assert!(outbox.is_empty());
    outbox.push(spans(1), now);
    outbox.begin();
    assert_eq!(outbox.answered(refused(), now), Outcome { refused: 1, ..Outcome::default() });
    outbox.push(spans(4), now);
    outbox.begin();
    let partly = Answer::Partly { refused: 3, why: "old".to_owned() };
    let say = Some(Say::Partly { why: "old".to_owned() });
    assert_eq!(
        outbox.answered(partly.clone(), now),
        Outcome { sent: 1, refused: 3, say, ..Outcome::default() }
    );
    // One that takes some of each request is said now and then.
    for (after, says) in [(1, false), (700, true)] {
        let now = now + Duration::from_secs(after);
        outbox.push(spans(1), now);
        outbox.begin();
        assert_eq!(outbox.answered(taken(), now).say, None);
        outbox.push(spans(4), now);
        outbox.begin();
        assert_eq!(outbox.answered(partly.clone(), now).say.is_some(), says);
    }
}

// Invariant: what waits is bounded, and what has no room is said once.

#[test]
fn spans_without_room_are_dropped_and_said_once() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let outcome = outbox.push(spans(WAITING_MAX + 2), now);
    assert_eq!(outcome, Outcome { dropped: 2, say: Some(Say::Full), ..Outcome::default() });
    assert_eq!(outbox.push(spans(1), now), Outcome { dropped: 1, ..Outcome::default() });
    assert_eq!(outbox.clear().dropped, WAITING_MAX as u64);
    assert!(outbox.is_empty() && outbox.due().is_none());
}

// Invariant: another collector gets at once what waits.

#[test]
fn another_collector_gets_what_waits() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    outbox.push(spans(2), now);
    let under_way = outbox.begin();
    outbox.answered(later(Some(300)), now);
    outbox.reconfigured(now);
    assert_eq!(outbox.due(), Some(now));
    assert_eq!(outbox.begin(), under_way);
    outbox.reconfigured(now);
    assert_eq!(outbox.begin(), under_way, "the request was given up on its way");
    assert_eq!(outbox.answered(taken(), now).sent, 2);
}
