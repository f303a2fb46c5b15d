// Invariant: firewalls are kept as pve-firewall keeps them, in its types.

use serde_json::{Value, json};

use super::Play;
use super::fakes::refusal;

const RULES: &str = "/cluster/firewall/rules";
const RULE: &str = "/cluster/firewall/rules/{pos}";
const SETS: &str = "/cluster/firewall/ipset";
const SET: &str = "/cluster/firewall/ipset/{name}";
const MEMBER: &str = "/cluster/firewall/ipset/{name}/{cidr}";
const GROUPS: &str = "/cluster/firewall/groups";

async fn comments(play: &Play, route: &'static str, with: Value) -> Vec<Value> {
    let list = play.get(route, with).await;
    list.as_array().unwrap().iter().map(|rule| rule["comment"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_place_of_one_rule_is_text_and_in_a_list_a_number() {
    let play = Play::at_once();
    let with = json!({ "type": "in", "action": "ACCEPT" });
    play.call("POST", RULES, with).await.unwrap();
    assert_eq!(play.get(RULES, json!({})).await[0]["pos"], 0);
    assert_eq!(play.get(RULE, json!({ "pos": 0 })).await["pos"], "0");
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_comes_first_and_a_moved_one_before_the_place_it_names() {
    let play = Play::at_once();
    for comment in ["c", "b", "a"] {
        let with = json!({ "type": "in", "action": "DROP", "comment": comment, "pos": 7 });
        play.call("POST", RULES, with).await.unwrap();
    }
    assert_eq!(comments(&play, RULES, json!({})).await, ["a", "b", "c"]);
    let with = json!({ "pos": 0, "moveto": 2, "comment": "not taken" });
    play.call("PUT", RULE, with).await.unwrap();
    assert_eq!(comments(&play, RULES, json!({})).await, ["b", "a", "c"]);
    let stale = play.call("DELETE", RULE, json!({ "pos": 0, "digest": "x" })).await;
    assert!(refusal(stale).starts_with("detected modified configuration"));
}

#[tokio::test(start_paused = true)]
async fn options_change_for_a_caller_that_saw_them_as_they_are() {
    let play = Play::at_once();
    let route = "/cluster/firewall/options";
    let seen = play.get(route, json!({})).await["digest"].clone();
    let with = json!({ "enable": 1, "digest": seen });
    play.call("PUT", route, with.clone()).await.unwrap();
    let stale = refusal(play.call("PUT", route, with).await);
    assert!(stale.starts_with("detected modified configuration"), "{stale}");
}

#[tokio::test(start_paused = true)]
async fn a_firewall_that_is_only_read_is_not_kept() {
    let play = Play::at_once();
    let route = "/nodes/{node}/qemu/{vmid}/firewall/options";
    for vmid in 700..710 {
        play.get(route, json!({ "vmid": vmid })).await;
    }
    assert_eq!(play.world.cluster.state().firewalls.len(), 0);
    play.call("PUT", route, json!({ "vmid": 700, "enable": true })).await.unwrap();
    assert_eq!(play.world.cluster.state().firewalls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn options_that_are_numbers_come_as_numbers() {
    let play = Play::at_once();
    let with = json!({ "nf_conntrack_max": 65536, "log_nf_conntrack": true, "enable": true });
    play.call("PUT", "/nodes/{node}/firewall/options", with).await.unwrap();
    let options = play.get("/nodes/{node}/firewall/options", json!({})).await;
    assert_eq!(options["nf_conntrack_max"], 65536);
    assert_eq!((&options["log_nf_conntrack"], &options["enable"]), (&json!(1), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_set_keeps_its_comment_and_its_members_with_their_networks() {
    let play = Play::at_once();
    play.call("POST", SETS, json!({ "name": "lan", "comment": "near" })).await.unwrap();
    assert_eq!(play.get(SETS, json!({})).await[0]["comment"], "near");
    let with = json!({ "name": "lan", "cidr": "10.0.0.0/8", "comment": "all", "nomatch": true });
    play.call("POST", SET, with).await.unwrap();
    play.call("POST", SET, json!({ "name": "lan", "cidr": "10.1.1.1/32" })).await.unwrap();
    let members = play.get(SET, json!({ "name": "lan" })).await;
    assert_eq!((&members[0]["cidr"], &members[0]["nomatch"]), (&json!("10.0.0.0/8"), &json!(1)));
    assert_eq!(members[1]["cidr"], "10.1.1.1");
    let net = json!({ "name": "lan", "cidr": "10.0.0.0/8" });
    assert_eq!(play.get(MEMBER, net.clone()).await["comment"], "all");
    let with = json!({ "name": "lan", "cidr": "10.0.0.0/8", "comment": "some" });
    play.call("PUT", MEMBER, with).await.unwrap();
    let changed = play.get(MEMBER, net.clone()).await;
    assert_eq!((&changed["comment"], changed.get("nomatch")), (&json!("some"), None));
    let full = play.call("DELETE", SET, json!({ "name": "lan" })).await;
    assert_eq!(refusal(full), "IPSet 'lan' is not empty");
    play.call("DELETE", MEMBER, net.clone()).await.unwrap();
    let gone = play.call("GET", MEMBER, net).await.unwrap_err();
    assert_eq!(gone.errors["cidr"], "no such IP/Network");
    let with = json!({ "name": "near", "rename": "lan", "comment": "nearer" });
    play.call("POST", SETS, with).await.unwrap();
    let list = play.get(SETS, json!({})).await;
    assert_eq!((&list[0]["name"], &list[0]["comment"]), (&json!("near"), &json!("nearer")));
    play.call("DELETE", SET, json!({ "name": "near", "force": true })).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_holds_rules_that_other_rules_name() {
    let play = Play::at_once();
    play.call("POST", GROUPS, json!({ "group": "web", "comment": "http" })).await.unwrap();
    let twice = play.call("POST", GROUPS, json!({ "group": "web" })).await.unwrap_err();
    assert_eq!(twice.errors["group"], "Security group 'web' already exists");
    let group = "/cluster/firewall/groups/{group}";
    let rule = json!({ "group": "web", "type": "in", "action": "ACCEPT", "comment": "in" });
    play.call("POST", group, rule).await.unwrap();
    assert_eq!(comments(&play, group, json!({ "group": "web" })).await, ["in"]);
    let unknown = json!({ "type": "group", "action": "nope" });
    let unknown = play.call("POST", RULES, unknown).await.unwrap_err();
    assert_eq!(unknown.errors["action"], "no such security group 'nope'");
    play.call("POST", RULES, json!({ "type": "group", "action": "web" })).await.unwrap();
    let with = json!({ "group": "www", "rename": "web" });
    play.call("POST", GROUPS, with).await.unwrap();
    assert_eq!(play.get(RULES, json!({})).await[0]["action"], "www");
    let list = play.get(GROUPS, json!({})).await;
    assert_eq!((&list[0]["group"], &list[0]["comment"]), (&json!("www"), &json!("http")));
    let full = play.call("DELETE", group, json!({ "group": "www" })).await;
    assert_eq!(refusal(full), "Security group 'www' is not empty");
    let one = "/cluster/firewall/groups/{group}/{pos}";
    assert_eq!(play.get(one, json!({ "group": "www", "pos": 0 })).await["pos"], "0");
    play.call("DELETE", one, json!({ "group": "www", "pos": 0 })).await.unwrap();
    play.call("DELETE", group, json!({ "group": "www" })).await.unwrap();
    let gone = play.call("GET", group, json!({ "group": "www" })).await;
    assert_eq!(refusal(gone), "no such security group 'www'");
}

#[tokio::test(start_paused = true)]
async fn an_alias_has_no_case_and_shows_among_what_rules_can_name() {
    let play = Play::at_once();
    let aliases = "/cluster/firewall/aliases";
    let alias = "/cluster/firewall/aliases/{name}";
    let with = json!({ "name": "Home", "cidr": "10.0.0.1", "comment": "me" });
    play.call("POST", aliases, with).await.unwrap();
    let twice = json!({ "name": "hOME", "cidr": "10.0.0.2" });
    let twice = play.call("POST", aliases, twice).await.unwrap_err();
    assert_eq!(twice.errors["name"], "alias 'hOME' already exists");
    assert_eq!(play.get(alias, json!({ "name": "home" })).await["cidr"], "10.0.0.1");
    let with = json!({ "name": "home", "rename": "house", "cidr": "10.0.0.3" });
    play.call("PUT", alias, with).await.unwrap();
    let refs = play.get("/cluster/firewall/refs", json!({})).await;
    assert_eq!(
        refs,
        json!([{ "type": "alias", "name": "house", "ref": "dc/house", "scope": "dc" }])
    );
    play.call("DELETE", alias, json!({ "name": "house" })).await.unwrap();
    let gone = play.call("GET", alias, json!({ "name": "house" })).await.unwrap_err();
    assert_eq!(gone.errors["name"], "no such alias");
}
