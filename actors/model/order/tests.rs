#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::size::Size;

fn order(n: u32, work: Work) -> Order {
    let id = OrderId::new(format!("order-{n}"));
    Order { id, work, by: "token:ci".into(), asked: WallTime(1000), key: None }
}

fn done(power: Power) -> OrderEnd {
    OrderEnd { phase: OrderPhase::Done, text: String::new(), power, snapshot_taken: None }
}

// Invariant: a machine has one order at a time, and one that is over is known for a while.

#[test]
fn an_order_that_is_over_leaves_its_power_and_its_sizes() {
    let mut orders = MachineOrders::default();
    assert!(orders.is_untouched() && orders.expects_running() && !orders.spoils());
    let stop = order(1, Work::Stop);
    orders.begin(stop.clone());
    orders.begin(stop.clone());
    assert!(!orders.expects_running());
    orders.end(&OrderId::new("order-9"), &done(Power::Running), WallTime(2000));
    assert_eq!(orders.running, Some(stop.clone()), "another order's end is no end");
    orders.end(&stop.id, &done(Power::Stopped), WallTime(2000));
    assert!(orders.knows(&stop.id) && !orders.altered && orders.spoils());
    let sizes = Size { cores: Some(4), ..Size::NONE };
    let resize = order(2, Work::Resize(sizes));
    orders.begin(resize.clone());
    orders.end(&resize.id, &done(Power::Stopped), WallTime(3000));
    assert_eq!((orders.sizes, orders.altered), (sizes, true));
    for n in 3..20 {
        let next = order(n, Work::Start);
        orders.begin(next.clone());
        orders.end(&next.id, &done(Power::Running), WallTime(4000));
    }
    assert_eq!(orders.past.len(), ORDERS_KEPT);
    let text = serde_json::to_string(&orders).unwrap();
    assert_eq!(serde_json::from_str::<MachineOrders>(&text).unwrap(), orders);
    assert_eq!(serde_json::from_str::<MachineOrders>("{}").unwrap(), MachineOrders::default());
}

// Invariant: what Proxmox would refuse, and what would touch drover's own snapshots, never leaves.

#[test]
fn wrong_names_descriptions_and_sizes_are_refused_before_any_call() {
    let named = |name: &str| Work::Revert { name: name.into() }.check();
    for good in ["ab", "before-upgrade", "B4_x", "pending2", "dro-ver"] {
        assert_eq!(named(good), Ok(()), "{good}");
    }
    for bad in ["", "a", "1ab", "-ab", "a b", "a/../b", "ä-b", "current", "pending", "a\nb"] {
        assert!(named(bad).is_err(), "{bad:?}");
    }
    for own in ["drover-clean", "DROVER-clean", "drover2"] {
        assert!(named(own).unwrap_err().1.contains("drover"), "{own}");
    }
    assert!(named(&"a".repeat(40)).is_ok() && named(&"a".repeat(41)).is_err());
    let described = |description: String| {
        Work::Snapshot { name: "ab".into(), description, memory: false }.check()
    };
    assert!(described("two\nlines".into()).is_ok());
    assert!(described("bell\u{7}".into()).is_err() && described("x".repeat(501)).is_err());
    let sized = |cores, memory_mb, disk_gb| {
        Work::Resize(Size { cores, memory_mb, disk_gb }).check().map_err(|(field, _)| field)
    };
    assert_eq!(sized(Some(1), Some(16), Some(1)), Ok(()));
    assert_eq!(sized(None, None, None), Err("cores"));
    assert_eq!(sized(Some(0), None, None), Err("cores"));
    assert_eq!(sized(None, Some(15), None), Err("memoryMb"));
    assert_eq!(sized(None, None, Some(u32::MAX)), Err("diskSizeGb"));
}

// Invariant: each word of Proxmox and QEMU has one word of drover.

#[test]
fn words_of_proxmox_are_read_as_the_book_says() {
    let power = |word| Power::of(word).name();
    assert_eq!(["running", "stopped"].map(power), ["running", "stopped"]);
    assert_eq!(["paused", "suspended", "prelaunch"].map(power), ["suspended"; 3]);
    assert_eq!(["", "unknown", "io-error", "save-vm"].map(power), ["unknown"; 4]);
}
