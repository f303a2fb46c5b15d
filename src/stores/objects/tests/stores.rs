//! What stores do: they end, refuse, ignore, and hold what is no journal.

use drover_vault::{Register as _, Version, contract as beside};

use super::wrapped::Wrapped;
use super::*;

// Invariant: what lies beside the journal does what its ports say.

#[test]
fn a_vault_and_a_register_do_what_they_must() {
    let Some(server) = ObjectServer::start() else { return };
    for (number, each) in beside::VAULT.into_iter().enumerate() {
        let address = server.address(&format!("vault/{number}"));
        each(&mut || Box::new(ObjectVault::new(&address).unwrap()));
    }
    for (number, each) in beside::REGISTER.into_iter().enumerate() {
        let address = server.address(&format!("entries/{number}"));
        each(&mut || Box::new(ObjectRegister::open(&address).unwrap()));
    }
}

#[test]
fn a_write_to_a_register_whose_answer_was_lost_is_recognised() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    let register = ObjectRegister::open(&door.address(&server, "herd")).unwrap();
    let mut before: Option<Version> = None;
    for bytes in [b"one", b"two"] {
        door.swallow_answers_to_writes(1);
        let version = register.write("leader", before.as_ref(), bytes).unwrap().unwrap();
        assert_eq!(register.read("leader").unwrap().unwrap().version, version);
        before = Some(version);
    }
    door.swallow_answers(true);
    let lost = register.write("leader", before.as_ref(), b"three").unwrap_err();
    assert!(matches!(lost, drover_vault::StoreError::Unknown { .. }), "{lost:?}");
}

#[test]
fn a_store_that_hangs_holds_up_those_who_lead_for_a_moment_alone() {
    let Some(server) = ObjectServer::start() else { return };
    // It takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.address_at(silent.local_addr().unwrap().port(), "herd");
    let register = ObjectRegister::limited(&address).unwrap();
    let started = std::time::Instant::now();
    assert!(register.read("leader").is_err());
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_millis(3000), "{took:?}");
}

#[test]
fn what_somebody_put_in_place_of_an_entry_is_read_and_can_be_replaced() {
    let Some(server) = ObjectServer::start() else { return };
    let log = open(&server, "herd");
    let register = ObjectRegister::open(&server.address("herd")).unwrap();
    for text in ["", "hello"] {
        log.gateway.overwrite("register/leader", text.into()).unwrap();
        let found = register.read("leader").unwrap().unwrap();
        assert_eq!(found.bytes, text.as_bytes());
        assert!(register.write("leader", Some(&found.version), b"sound").unwrap().is_some());
        assert_eq!(register.read("leader").unwrap().unwrap().bytes, b"sound");
    }
}

#[test]
fn more_than_a_page_of_names_is_listed_whole() {
    let Some(server) = ObjectServer::start() else { return };
    let log = open(&server, "herd");
    let wanted: Vec<String> = (0..1100).map(|number| format!("many/{number:04}")).collect();
    for name in &wanted {
        log.gateway.overwrite(name, "x".into()).unwrap();
    }
    assert_eq!(names(&log, "many"), wanted);
    let behind = log.gateway.list("many", Some("many/0049")).unwrap();
    assert_eq!((behind.len(), behind[0].0.as_str()), (1050, "many/0050"));
    log.gateway.delete(&wanted).unwrap();
    assert_eq!(names(&log, "many"), Vec::<String>::new());
    // As where the answer to the first call was lost.
    log.gateway.delete(&wanted[..20]).unwrap();
}

// Invariant: the log goes on when the store does.

#[test]
fn a_store_that_was_killed_amid_appends_lost_nothing_that_it_took() {
    let Some(mut server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    let mut seq = 0;
    for _ in 0..3 {
        for _ in 0..5 {
            seq = log.append(seq, &records(seq + 1..=seq + 1), true).unwrap();
        }
        server.kill();
        let refused = log.append(seq, &records(seq + 1..=seq + 1), true).unwrap_err();
        assert!(causes::chain(&refused).contains("could not be written"), "{refused:?}");
        server.restart();
    }
    log.append(seq, &records(seq + 1..=seq + 1), true).unwrap();
    let wanted: Vec<_> = (1..=seq + 1).map(|number| (number, record(number))).collect();
    assert_eq!((read(&log, 0), read(&open(&server, "herd"), 0)), (wanted.clone(), wanted));
}

#[test]
fn a_store_that_is_busy_is_asked_again() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    let mut log = ObjectLog::open(&door.address(&server, "herd")).unwrap();
    log.append(0, &records(1..=1), true).unwrap();
    door.refuse(2);
    log.append(1, &records(2..=2), true).unwrap();
    door.refuse(2);
    assert_eq!((numbers(&log), door.refused()), (vec![1, 2], 4));
    door.refuse(1000);
    let refused = log.append(2, &records(3..=3), true).unwrap_err();
    assert!(causes::chain(&refused).contains("SlowDown: Reduce your"), "{refused:?}");
}

// Invariant: a store that cannot serve is refused with what is wrong, and no secret is shown.

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let Some(server) = ObjectServer::start() else { return };
    let address = server.address("herd");
    for (name, none_match) in [("`If-None-Match`", true), ("`If-Match`", false)] {
        let store = Wrapped {
            ignores_none_match: none_match,
            ignores_match: !none_match,
            ..Wrapped::of(&address)
        };
        let gateway = Gateway::over(Arc::new(store), &address).unwrap();
        let text = probe::probe(&gateway).unwrap_err().to_string();
        assert!(text.contains(&format!("ignores {name}")), "{text}");
    }
    // One that keeps them is left as it was.
    let log = open(&server, "herd");
    assert_eq!(names(&log, probe::PROBES), Vec::<String>::new());
}

#[test]
fn a_wrong_secret_a_missing_bucket_and_no_server_are_named() {
    let Some(server) = ObjectServer::start() else { return };
    let text = |address: &ObjectAddress| causes::chain(&ObjectLog::open(address).err().unwrap());
    let wrong = text(&server.address_with_a_wrong_secret());
    assert!(wrong.contains("refuses this login: SignatureDoesNotMatch"), "{wrong}");
    assert!(!wrong.contains("not-it"), "{wrong}");
    let missing = text(&server.address_of_no_bucket());
    assert!(missing.contains("there is no bucket `nowhere`"), "{missing}");
    // Nobody listens on port 1.
    let login = server.text("herd");
    let (_, login) = login.split_once('&').unwrap();
    let nobody =
        text(&format!("s3://herd/herd?endpoint=http://127.0.0.1:1&{login}").parse().unwrap());
    assert!(nobody.contains("the store was not reached"), "{nobody}");
    assert!(
        nobody.starts_with("the journal `s3://herd/herd?endpoint=http://127.0.0.1:1` could not")
    );
}

// Invariant: what is no journal of this drover is refused and left alone.

#[test]
fn a_newer_format_and_what_is_no_entry_are_refused() {
    let Some(server) = ObjectServer::start() else { return };
    let address = server.address("herd");
    let log = open(&server, "herd");
    assert!(matches!(ObjectLog::look(&address), Err(LogError::Io { .. })));
    let first = Position::FIRST.name();
    log.gateway.overwrite(&first, "{\"format\":2,\"new\":true}\n".into()).unwrap();
    let newer = ObjectLog::open(&address);
    assert!(matches!(newer, Err(LogError::Newer { found: 2, known: 1, .. })));
    log.gateway.overwrite(&first, "somebody else's".into()).unwrap();
    assert!(matches!(ObjectLog::open(&address), Err(LogError::Corrupt { .. })));
    log.gateway.delete(&[first]).unwrap();
    log.gateway.overwrite("log/readme", "x".into()).unwrap();
    assert!(matches!(ObjectLog::open(&address), Err(LogError::Corrupt { .. })));
}

#[test]
fn an_object_that_is_missing_or_cut_is_damage() {
    let Some(server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    log.append(0, &records(1..=2), true).unwrap();
    snapshot(&mut log, 2, &large(PART_BYTES + 9)).unwrap();
    for seq in 2..5 {
        log.append(seq, &[large(100_000)], true).unwrap();
    }
    let head = log.known.entry.head.clone();
    let part = head.snapshot.unwrap().names().remove(1);
    let chunk = head.chunks[0].name.clone();
    log.gateway.overwrite(&part, "cut".into()).unwrap();
    let cut = log.snapshot().unwrap_err();
    assert!(causes::chain(&cut).contains("of 1048585 bytes"), "{cut:?}");
    log.gateway.overwrite(&chunk, "cut".into()).unwrap();
    let cut = log.read_from(1).unwrap_err();
    assert!(causes::chain(&cut).contains("has not its records"), "{cut:?}");
    log.gateway.delete(&[part.clone(), chunk.clone()]).unwrap();
    for (missing, found) in [(part, log.snapshot().map(drop)), (chunk, log.read_from(1).map(drop))]
    {
        assert!(matches!(&found, Err(LogError::Corrupt { .. })), "{found:?}");
        assert!(causes::chain(&found.unwrap_err()).contains(&missing), "{missing}");
    }
    assert_eq!(read(&log, 5).len(), 1, "what is there is read");
}
