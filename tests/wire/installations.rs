//! `drover setup rights` beside other installations on one cluster, and with logins that may not do
//! what it does.

use super::harness::{Sim, Site};
use super::rights::{run, setup, site, versions};

/// A second installation: a user and a pool of its own.
fn other_site(sim: &Sim, keys: &str) -> Site {
    let site = site(sim, keys);
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    let yaml = yaml.replace("drover@pve!ci", "other@pve!ci");
    site.write_yaml(&yaml.replace("targetPool: drover", "targetPool: other"));
    site
}

fn is_well(site: &Site) {
    let out = run(site, &["doctor"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

// Invariant: installations on one cluster take nothing from each other, whatever each of them is asked to do.

#[test]
fn two_installations_that_share_roles_keep_what_each_of_them_needs() {
    versions(|sim, _| {
        let one = site(sim, "    reset: DISK\n");
        let other = other_site(sim, "    cores: 2\n");
        assert_eq!(setup(&one, &[]).0, 0);
        let shared = "role DroverGuests is shared with the user drover@pve on /pool/drover, and holds \
                      VM.Snapshot beyond what is needed here: drover takes nothing from it; --role-prefix \
                      WORD gives this installation roles of its own";
        let (code, dry) = setup(&other, &["--dry-run"]);
        assert_eq!(code, 0, "{dry}");
        assert!(dry.contains(&format!("# {shared}\n")), "{dry}");
        let (code, done) = setup(&other, &[]);
        assert_eq!(code, 0, "{done}");
        assert!(done.contains(&format!("note: {shared}\n")), "{done}");
        let (code, again) = setup(&one, &[]);
        assert_eq!(code, 0, "{again}");
        assert!(again.contains("nothing to do: drover@pve!ci holds what is needed"), "{again}");
        assert!(again.contains("is shared with the user other@pve on /pool/other"), "{again}");
        for said in [&dry, &done, &again] {
            assert!(!said.contains("pveum role modify DroverGuests --privs 'Pool"), "{said}");
        }
        is_well(&one);
        is_well(&other);

        // With roles of its own nothing is shared any more, and what is left over can be taken away.
        let (code, own) = setup(&other, &["--role-prefix", "Other"]);
        assert_eq!(code, 0, "{own}");
        assert!(own.contains("done: pveum role add OtherGuests"), "{own}");
        let left = "other@pve has the role DroverGuests on /pool/other, which drover does not need: pveum acl delete";
        assert!(own.contains(left), "{own}");
        let entry = |role| {
            [("path", "/pool/other"), ("users", "other@pve"), ("roles", role), ("delete", "1")]
        };
        sim.send("PUT", "/access/acl", &entry("DroverGuests"));
        is_well(&one);
        is_well(&other);
        // What only the other one needed is reported with what takes it away, which is enough for this one.
        let (code, alone) = setup(&one, &[]);
        assert_eq!(code, 0, "{alone}");
        let narrow =
            "holds VM.Config.CPU beyond what is needed: pveum role modify DroverGuests --privs '";
        let (_, privs) = alone.split_once(narrow).unwrap();
        let (privs, _) = privs.split_once('\'').unwrap();
        sim.send("PUT", "/access/roles/DroverGuests", &[("privs", privs)]);
        is_well(&one);
        is_well(&other);
    });
}

// Invariant: an administrator who may not do it is reported once, before anything is done: who, which
// privileges, where, and what to do.

#[test]
fn a_login_that_may_not_make_rights_hears_what_it_lacks_in_one_line() {
    versions(|sim, _| {
        let site = site(sim, "");
        let user = [("userid", "weak@pve"), ("password", "weak-password")];
        sim.send("POST", "/access/users", &user);
        site.write_secret("weak", "weak-password");
        let weak = |file: &str, user: &str| {
            let file = site.dir.path().join(file);
            let file = file.to_str().unwrap();
            let out = run(&site, &["setup", "rights", "--user", user, "--password-file", file]);
            let reported = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
            (out.status.code(), reported)
        };
        let (code, reported) = weak("weak", "weak@pve");
        assert_eq!((code, reported.lines().count()), (Some(1), 1), "{reported}");
        let lacks = "drover: weak@pve lacks Sys.Audit on /access";
        assert!(reported.starts_with(lacks), "{reported}");
        assert!(
            reported.ends_with("log in as an administrator with --user, such as root@pam\n"),
            "{reported}"
        );

        // One who may look at everything, and change nothing.
        let entry = [("path", "/"), ("users", "weak@pve"), ("roles", "PVEAuditor")];
        sim.send("PUT", "/access/acl", &entry);
        let (code, reported) = weak("weak", "weak@pve");
        assert_eq!((code, reported.lines().count()), (Some(1), 1), "{reported}");
        for lack in [
            "Sys.Modify on /access",
            "User.Modify on /access/groups",
            "Realm.AllocateUser on /access/realm/pve",
            "Pool.Allocate on /pool/drover",
            "Permissions.Modify or VM.Allocate on /vms/9000",
        ] {
            assert!(reported.contains(lack), "{lack}: {reported}");
        }

        // A wrong password, and a token that has expired.
        site.write_secret("wrong", "wrong-password");
        let (code, reported) = weak("wrong", "weak@pve");
        assert_eq!((code, reported.lines().count()), (Some(1), 1), "{reported}");
        let refused = "drover: cloud `lab` does not let weak@pve in: ";
        assert!(reported.starts_with(refused) && reported.contains("the password"), "{reported}");
        let expired = [("privsep", "0"), ("expire", "1")];
        let made = sim.send("POST", "/access/users/weak@pve/token/old", &expired);
        site.write_secret("old", made["data"]["value"].as_str().unwrap());
        let (code, reported) = weak("old", "weak@pve!old");
        assert_eq!((code, reported.lines().count()), (Some(1), 1), "{reported}");
        let refused = "drover: cloud `lab` does not let weak@pve!old in: ";
        assert!(
            reported.starts_with(refused) && reported.contains("has not expired"),
            "{reported}"
        );
    });
}
