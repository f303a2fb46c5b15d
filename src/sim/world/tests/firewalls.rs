// Invariant: firewalls are stored as pve-firewall stores them, with its types.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::refusal;

const RULES: &str = "/cluster/firewall/rules";
const RULE: &str = "/cluster/firewall/rules/{pos}";
const SETS: &str = "/cluster/firewall/ipset";
const SET: &str = "/cluster/firewall/ipset/{name}";
const MEMBER: &str = "/cluster/firewall/ipset/{name}/{cidr}";
const GROUPS: &str = "/cluster/firewall/groups";

async fn comments(cluster: &TestCluster, route: &'static str, with: Value) -> Vec<Value> {
    let list = cluster.get(route, with).await;
    list.as_array().unwrap().iter().map(|rule| rule["comment"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_place_of_one_rule_is_text_and_in_a_list_a_number() {
    let cluster = TestCluster::instant();
    let with = json!({ "type": "in", "action": "ACCEPT" });
    cluster.call("POST", RULES, with).await.unwrap();
    assert_eq!(cluster.get(RULES, json!({})).await[0]["pos"], 0);
    assert_eq!(cluster.get(RULE, json!({ "pos": 0 })).await["pos"], "0");
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_comes_first_and_a_moved_one_before_the_place_it_names() {
    let cluster = TestCluster::instant();
    for comment in ["c", "b", "a"] {
        let with = json!({ "type": "in", "action": "DROP", "comment": comment, "pos": 7 });
        cluster.call("POST", RULES, with).await.unwrap();
    }
    assert_eq!(comments(&cluster, RULES, json!({})).await, ["a", "b", "c"]);
    let with = json!({ "pos": 0, "moveto": 2, "comment": "not taken" });
    cluster.call("PUT", RULE, with).await.unwrap();
    assert_eq!(comments(&cluster, RULES, json!({})).await, ["b", "a", "c"]);
    let stale = cluster.call("DELETE", RULE, json!({ "pos": 0, "digest": "x" })).await;
    assert!(refusal(stale).starts_with("detected modified configuration"));
}

#[tokio::test(start_paused = true)]
async fn options_change_for_a_caller_that_saw_them_as_they_are() {
    let cluster = TestCluster::instant();
    let route = "/cluster/firewall/options";
    let visible = cluster.get(route, json!({})).await["digest"].clone();
    let with = json!({ "enable": 1, "digest": visible });
    cluster.call("PUT", route, with.clone()).await.unwrap();
    let stale = refusal(cluster.call("PUT", route, with).await);
    assert!(stale.starts_with("detected modified configuration"), "{stale}");
}

#[tokio::test(start_paused = true)]
async fn a_firewall_that_is_only_read_is_not_kept() {
    let cluster = TestCluster::instant();
    let route = "/nodes/{node}/qemu/{vmid}/firewall/options";
    for vmid in 700..710 {
        cluster.get(route, json!({ "vmid": vmid })).await;
    }
    assert_eq!(cluster.world.cluster.state().firewalls.len(), 0);
    cluster.call("PUT", route, json!({ "vmid": 700, "enable": true })).await.unwrap();
    assert_eq!(cluster.world.cluster.state().firewalls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn options_that_are_numbers_come_as_numbers() {
    let cluster = TestCluster::instant();
    let with = json!({ "nf_conntrack_max": 65536, "log_nf_conntrack": true, "enable": true });
    cluster.call("PUT", "/nodes/{node}/firewall/options", with).await.unwrap();
    let options = cluster.get("/nodes/{node}/firewall/options", json!({})).await;
    assert_eq!(options["nf_conntrack_max"], 65536);
    assert_eq!((&options["log_nf_conntrack"], &options["enable"]), (&json!(1), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_set_keeps_its_comment_and_its_members_with_their_networks() {
    let cluster = TestCluster::instant();
    cluster.call("POST", SETS, json!({ "name": "lan", "comment": "near" })).await.unwrap();
    assert_eq!(cluster.get(SETS, json!({})).await[0]["comment"], "near");
    let with = json!({ "name": "lan", "cidr": "10.0.0.0/8", "comment": "all", "nomatch": true });
    cluster.call("POST", SET, with).await.unwrap();
    cluster.call("POST", SET, json!({ "name": "lan", "cidr": "10.1.1.1/32" })).await.unwrap();
    let members = cluster.get(SET, json!({ "name": "lan" })).await;
    assert_eq!((&members[0]["cidr"], &members[0]["nomatch"]), (&json!("10.0.0.0/8"), &json!(1)));
    assert_eq!(members[1]["cidr"], "10.1.1.1");
    let net = json!({ "name": "lan", "cidr": "10.0.0.0/8" });
    assert_eq!(cluster.get(MEMBER, net.clone()).await["comment"], "all");
    let with = json!({ "name": "lan", "cidr": "10.0.0.0/8", "comment": "some" });
    cluster.call("PUT", MEMBER, with).await.unwrap();
    let changed = cluster.get(MEMBER, net.clone()).await;
    assert_eq!((&changed["comment"], changed.get("nomatch")), (&json!("some"), None));
    let full = cluster.call("DELETE", SET, json!({ "name": "lan" })).await;
    assert_eq!(refusal(full), "IPSet 'lan' is not empty");
    cluster.call("DELETE", MEMBER, net.clone()).await.unwrap();
    let missing = cluster.call("GET", MEMBER, net).await.unwrap_err();
    assert_eq!(missing.errors["cidr"], "no such IP/Network");
    let with = json!({ "name": "near", "rename": "lan", "comment": "nearer" });
    cluster.call("POST", SETS, with).await.unwrap();
    let list = cluster.get(SETS, json!({})).await;
    assert_eq!((&list[0]["name"], &list[0]["comment"]), (&json!("near"), &json!("nearer")));
    cluster.call("DELETE", SET, json!({ "name": "near", "force": true })).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_holds_rules_that_other_rules_name() {
    let cluster = TestCluster::instant();
    cluster.call("POST", GROUPS, json!({ "group": "web", "comment": "http" })).await.unwrap();
    let duplicate = cluster.call("POST", GROUPS, json!({ "group": "web" })).await.unwrap_err();
    assert_eq!(duplicate.errors["group"], "Security group 'web' already exists");
    let group = "/cluster/firewall/groups/{group}";
    let rule = json!({ "group": "web", "type": "in", "action": "ACCEPT", "comment": "in" });
    cluster.call("POST", group, rule).await.unwrap();
    assert_eq!(comments(&cluster, group, json!({ "group": "web" })).await, ["in"]);
    let unknown = json!({ "type": "group", "action": "nope" });
    let unknown = cluster.call("POST", RULES, unknown).await.unwrap_err();
    assert_eq!(unknown.errors["action"], "no such security group 'nope'");
    cluster.call("POST", RULES, json!({ "type": "group", "action": "web" })).await.unwrap();
    let with = json!({ "group": "www", "rename": "web" });
    cluster.call("POST", GROUPS, with).await.unwrap();
    assert_eq!(cluster.get(RULES, json!({})).await[0]["action"], "www");
    let list = cluster.get(GROUPS, json!({})).await;
    assert_eq!((&list[0]["group"], &list[0]["comment"]), (&json!("www"), &json!("http")));
    let full = cluster.call("DELETE", group, json!({ "group": "www" })).await;
    assert_eq!(refusal(full), "Security group 'www' is not empty");
    let one = "/cluster/firewall/groups/{group}/{pos}";
    assert_eq!(cluster.get(one, json!({ "group": "www", "pos": 0 })).await["pos"], "0");
    cluster.call("DELETE", one, json!({ "group": "www", "pos": 0 })).await.unwrap();
    cluster.call("DELETE", group, json!({ "group": "www" })).await.unwrap();
    let missing = cluster.call("GET", group, json!({ "group": "www" })).await;
    assert_eq!(refusal(missing), "no such security group 'www'");
}

#[tokio::test(start_paused = true)]
async fn an_alias_has_no_case_and_shows_among_what_rules_can_name() {
    let cluster = TestCluster::instant();
    let aliases = "/cluster/firewall/aliases";
    let alias = "/cluster/firewall/aliases/{name}";
    let with = json!({ "name": "Home", "cidr": "10.0.0.1", "comment": "me" });
    cluster.call("POST", aliases, with).await.unwrap();
    let duplicate = json!({ "name": "hOME", "cidr": "10.0.0.2" });
    let duplicate = cluster.call("POST", aliases, duplicate).await.unwrap_err();
    assert_eq!(duplicate.errors["name"], "alias 'hOME' already exists");
    assert_eq!(cluster.get(alias, json!({ "name": "home" })).await["cidr"], "10.0.0.1");
    let with = json!({ "name": "home", "rename": "house", "cidr": "10.0.0.3" });
    cluster.call("PUT", alias, with).await.unwrap();
    let refs = cluster.get("/cluster/firewall/refs", json!({})).await;
    assert_eq!(
        refs,
        json!([{ "type": "alias", "name": "house", "ref": "dc/house", "scope": "dc" }])
    );
    cluster.call("DELETE", alias, json!({ "name": "house" })).await.unwrap();
    let missing = cluster.call("GET", alias, json!({ "name": "house" })).await.unwrap_err();
    assert_eq!(missing.errors["name"], "no such alias");
}
