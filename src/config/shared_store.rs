//! `service.store` and `service.clusterKey`: the store that several drovers share.
//!
//! Both can come from the environment. A configuration that lies in the store itself cannot say where that
//! is, nor be the first to have the key: there the two agree with the environment, or are left out.

use std::time::Duration;

use causes::chain;
use drover_stores::StoreAddress;
use drover_vault::{ClusterKey, KeyError};
use secrecy::SecretString;

use super::context::{Bases, Context};
use super::environment::Environment;
use super::fault::Fault;
use super::keys::RawService;
use super::layer::Layer;

/// The store that several drovers share, of which one leads.
#[derive(Debug, Clone)]
pub struct StoreSpec {
    pub address: StoreAddress,
    /// What encrypts what lies beside the journal.
    pub key: ClusterKey,
    /// After how long another member leads when the leader is silent.
    pub leader_lease: Duration,
}

/// The variable that wins over `service.store`.
pub const STORE_VARIABLE: &str = "DROVER_STORE";
/// The variable that names the file of the key where `service.clusterKey` is not given.
pub const KEY_VARIABLE: &str = "DROVER_CLUSTER_KEY_FILE";

/// Makes the store; none where none is given, or it has faults.
pub(super) fn store(raw: &RawService, layer: &Layer, cx: &mut Context<'_>) -> Option<StoreSpec> {
    let key = key(layer, cx);
    let has_key =
        !layer.nested("clusterKey").is_empty() || cx.environment.get(KEY_VARIABLE).is_some();
    let given = cx.environment.get(STORE_VARIABLE).or(raw.store.as_deref());
    let Some(text) = given.filter(|text| !text.is_empty()).map(str::to_owned) else {
        if !layer.nested("clusterKey").is_empty() {
            let fault = layer.fault("clusterKey", "without `store` nothing is encrypted by it");
            cx.warnings
                .push(fault.help("name the store that the members share, or remove the key"));
        }
        return None;
    };
    if !has_key {
        let fault = layer.fault("store", "a store needs `clusterKey`, which all members have");
        cx.faults.push(fault.help(
            "make a key with `openssl rand -hex 32`, copy it to each member, and name it by \
             `clusterKey: {secretFile: …}` or --cluster-key-file",
        ));
    }
    if raw.listen.is_none() {
        let fault = layer.fault("store", "the members of a store reach each other by `listen`");
        cx.faults.push(fault.help("give `listen` an address that the other members can reach"));
    }
    if !layer.nested("configSync").is_empty() {
        let fault = layer.fault("store", "a store and `configSync` do not go together yet");
        cx.faults.push(fault.help("give every member the same files, or use one drover"));
    }
    let address = text.parse::<StoreAddress>();
    let of_environment = cx.environment.get(STORE_VARIABLE).is_some();
    let address = address.map_err(|error| {
        cx.faults.push(match of_environment {
            true => Fault::nowhere(STORE_VARIABLE, chain(&error))
                .help("--store or DROVER_STORE gives it"),
            false => layer.fault("store", chain(&error)),
        });
    });
    if let (Ok(address), Some(written)) = (&address, &raw.store) {
        same_store(address, written, layer, cx);
    }
    let leader_lease = Duration::from_secs(raw.leader_lease_sec);
    Some(StoreSpec { address: address.ok()?, key: key?, leader_lease })
}

/// Refuses a configuration in a store that names another one.
fn same_store(address: &StoreAddress, written: &str, layer: &Layer, cx: &mut Context<'_>) {
    let is_other = |other: StoreAddress| other.name() != address.name();
    if cx.environment.is_for_stored() && written.parse().is_ok_and(is_other) {
        let message = format!("this configuration lies in {address}, and names another store");
        cx.faults.push(
            layer
                .fault("store", message)
                .help("leave `store` out: --store or DROVER_STORE of each member says where it is"),
        );
    }
}

/// The key of the YAML, else that of the environment. A configuration that lies in the store was opened
/// by the latter, so the two are the same there.
fn key(layer: &Layer, cx: &mut Context<'_>) -> Option<ClusterKey> {
    let given = layer.nested("clusterKey");
    let Some(given) = given.first() else {
        let secret = cx.secret_of_variable(KEY_VARIABLE)?;
        let wrong = |text: String| cx.faults.push(Fault::nowhere(KEY_VARIABLE, text));
        return key_of_file(&secret, cx.environment).map_err(wrong).ok();
    };
    let secret = cx.secret(given)?;
    let name = given.chosen().unwrap_or("secretFile");
    let wrong = |error: KeyError| cx.faults.push(given.fault(name, error.to_string()));
    let key = ClusterKey::new(&secret).map_err(wrong).ok()?;
    let key = match given.text("secretFile") {
        Some(file) => key.of_file(file),
        None => key,
    };
    if cx.environment.is_for_stored()
        && let Some(other) = cx.secret_of_variable(KEY_VARIABLE)
        && ClusterKey::new(&other).is_ok_and(|other| !key.is_same(&other))
    {
        let file = cx.environment.get(KEY_VARIABLE).unwrap_or_default();
        let text = format!("it is another key than that of {KEY_VARIABLE}, `{file}`");
        let fault = given.fault(name, text);
        cx.faults.push(fault.help("leave `clusterKey` out, or name the same key"));
    }
    Some(key)
}

/// The key in the file that the environment names; what is wrong with it in words.
fn key_of_file(secret: &SecretString, environment: &Environment) -> Result<ClusterKey, String> {
    let file = environment.get(KEY_VARIABLE).unwrap_or_default();
    let key = ClusterKey::new(secret).map_err(|error| format!("`{file}`: {error}"))?;
    Ok(key.of_file(file))
}

/// The store and the key that the environment gives, before any file is read.
///
/// # Errors
/// What is missing or wrong, in words.
pub fn store_of_environment(
    environment: &Environment,
) -> Result<(StoreAddress, ClusterKey), String> {
    let store = environment
        .get(STORE_VARIABLE)
        .ok_or("no store is named: give --store, or --storage, --bucket and --shard")?;
    let wrong = |error| format!("{STORE_VARIABLE} or --store: {}", chain(&error));
    let address = store.parse::<StoreAddress>().map_err(wrong)?;
    let key = key_of_environment(environment)?;
    Ok((address, key.ok_or("no key is named: give --cluster-key-file")?))
}

/// The key of the members that the environment gives; none where it names no file.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn key_of_environment(environment: &Environment) -> Result<Option<ClusterKey>, String> {
    let mut cx = Context::new(environment, Bases::default());
    let Some(secret) = cx.secret_of_variable(KEY_VARIABLE) else {
        let fault = cx.faults.first().map(|fault| fault.message.clone());
        return fault.map_or(Ok(None), Err);
    };
    key_of_file(&secret, environment).map(Some)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::{Checked, LoadError};

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn load(dir: &Path, service: &str, environment: Environment) -> Result<Checked, LoadError> {
        let yaml = format!(
            "cloudConfigurations:\n  a: {{name: A, apiUrl: \"https://127.0.0.1:1\", credentialsId: t}}\n\
             credentials:\n  t: {{kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}}\n\
             service:\n  listen: \"127.0.0.1:0\"\n{service}"
        );
        fs::write(dir.join("drover.yaml"), yaml).unwrap();
        crate::load(&dir.join("drover.yaml"), &environment)
    }

    fn secret(dir: &Path, name: &str, text: &str) -> String {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    // Invariant: a configuration in a store agrees with the environment that it was found by.

    #[test]
    fn the_environment_gives_the_store_and_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let key = secret(dir.path(), "key", KEY);
        let of = |store: &str, key: &str| {
            Environment::of(&[(STORE_VARIABLE, store), (KEY_VARIABLE, key)])
        };
        let good = of("etcd://10.0.0.1/drover", &key);
        let spec = load(dir.path(), "", good.clone()).unwrap().service.store.unwrap();
        assert_eq!(spec.address.name(), "/drover");
        let (address, same) = store_of_environment(&good).unwrap();
        assert!(same.is_same(&spec.key) && address.name() == "/drover");
        let refused = |environment| store_of_environment(&environment).unwrap_err();
        assert!(refused(Environment::default()).contains("give --store"));
        assert!(refused(of("etcd://a/b", "")).contains("--cluster-key-file"));
        assert!(refused(of("etcd://a/b", "/nowhere/key")).contains("/nowhere/key"));
        let short = secret(dir.path(), "short", "abc");
        let said = refused(of("etcd://a/b", &short));
        assert!(said.contains("32 are needed") && said.contains(&short), "{said}");
        assert!(refused(of("ftp://a", &key)).contains("no address of a store"));
    }

    #[test]
    fn a_fault_of_the_environment_is_at_no_line_of_the_yaml() {
        let dir = tempfile::tempdir().unwrap();
        let key = secret(dir.path(), "key", KEY);
        let short = secret(dir.path(), "short", "abc");
        let rendered = |store: &str, key: &str| {
            let given = Environment::of(&[(STORE_VARIABLE, store), (KEY_VARIABLE, key)]);
            load(dir.path(), "  store: etcd://a/b\n", given).unwrap_err().render()
        };
        let text = rendered("s3://ci/a b", &key);
        assert!(text.contains(STORE_VARIABLE) && !text.contains("drover.yaml"), "{text}");
        let text = rendered("etcd://a/b", &short);
        assert!(text.contains(&short) && !text.contains("drover.yaml"), "{text}");
    }

    #[test]
    fn what_differs_from_the_environment_is_a_fault_of_a_stored_configuration_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (key, other) =
            (secret(dir.path(), "key", KEY), secret(dir.path(), "o", &"k".repeat(40)));
        let given = Environment::of(&[(STORE_VARIABLE, "etcd://a/b"), (KEY_VARIABLE, &key)]);
        let fine = [
            "  store: etcd://c,d/b\n".to_owned(),
            format!("  clusterKey: {{secretFile: {key}}}\n"),
        ];
        for service in &fine {
            load(dir.path(), service, given.clone().for_stored()).unwrap();
        }
        let wrong = [
            ("  store: etcd://a/c\n".to_owned(), "names another store"),
            (format!("  clusterKey: {{secretFile: {other}}}\n"), "another key than that of"),
            (
                "  clusterKey: {secretFile: key}\n".to_owned(),
                "relative, and the configuration lies",
            ),
            ("  stateDirectory: /var/lib/drover\n".to_owned(), "into the state directory"),
        ];
        for (service, said) in &wrong {
            load(dir.path(), service, given.clone()).unwrap();
            let refused = load(dir.path(), service, given.clone().for_stored()).unwrap_err();
            let text = refused.render();
            assert!(text.contains(said), "{text}");
        }
    }
}
