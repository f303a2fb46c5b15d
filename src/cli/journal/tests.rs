use drover_model::time::WallTime;

use super::*;

fn head(id: &str) -> RecordHead {
    let about = vec![("template", "lab/linux".to_owned()), ("agent", id.to_owned())];
    RecordHead { seq: 1, epoch: 1, at: WallTime(0), kind: "cloneIntended".to_owned(), about }
}

// Invariant: the start of an id stands for the one id that begins so.

#[test]
fn records_are_found_by_the_start_of_an_id() {
    let records = ["4f8z1c3p", "4f8z9999", "7f8z"].map(head);
    let whole = |start: &str| whole_id(&records, start).unwrap_or_else(|text| text);
    assert_eq!(whole("4f8z1"), "4f8z1c3p");
    assert_eq!(whole("7f8z"), "7f8z");
    assert_eq!(whole("lab/l"), "lab/linux");
    assert_eq!(whole("nope"), "nope", "no record is about it");
    assert_eq!(
        whole("4f8z"),
        "2 ids in the journal begin with `4f8z`: `4f8z1c3p`, `4f8z9999`; give more of it"
    );
    let text = listed(&[], 7, Some("nope"));
    assert!(text.ends_with("no record after that is about `nope`\n"), "{text}");
}
