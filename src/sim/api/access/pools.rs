//! `/pools`: sets of guests and storages for which roles are granted together.

use serde_json::{Value, json};

use super::state::{Pool, State};
use super::{Access, failed};
use crate::api::format::split_list;
use crate::call::{Answer, ApiError, Call, Caller, Outcome};
use crate::interfaces::Backend;

impl Access {
    pub(super) fn serve_pools(&self, call: &Call, world: &dyn Backend) -> Outcome {
        let name = call.params.text("poolid");
        match (call.method, call.route, name) {
            ("GET", "/pools", None) => Ok(Answer::new(self.pool_lines(&call.caller))),
            ("GET", "/pools", Some(name)) => {
                self.require(&call.caller, &format!("/pool/{name}"), &["Pool.Audit"])?;
                Ok(Answer::new(json!([self.pool(&name, call, world)?])))
            }
            ("GET", _, name) => self.pool(&name.unwrap_or_default(), call, world).map(Answer::new),
            ("POST", _, name) => self.create_pool(name.unwrap_or_default(), call),
            ("PUT", _, name) => self.update_pool(&name.unwrap_or_default(), call),
            (_, _, name) => self.delete_pool(&name.unwrap_or_default()),
        }
    }

    fn pool_lines(&self, caller: &Caller) -> Value {
        let state = self.state();
        let seen = |name: &str| {
            state.privileges(caller, &format!("/pool/{name}")).contains_key("Pool.Audit")
        };
        let line = |(name, pool): (&String, &Pool)| {
            let mut line = json!({"poolid": name});
            if let Some(comment) = &pool.comment {
                line["comment"] = comment.clone().into();
            }
            line
        };
        state.pools.iter().filter(|(name, _)| seen(name)).map(line).collect()
    }

    fn pool(&self, name: &str, call: &Call, world: &dyn Backend) -> Result<Value, ApiError> {
        // The world can call back, so that the lock must be free.
        let (vms, storages, comment) = {
            let state = self.state();
            let missing = || ApiError::failed(format!("pool '{name}' does not exist"));
            let pool = state.pools.get(name).ok_or_else(missing)?;
            let vms: Vec<u32> = pool.vms.iter().copied().collect();
            (vms, pool.storages.clone(), pool.comment.clone())
        };
        let kind = call.params.text("type");
        let shows = |what: &str| kind.as_deref().is_none_or(|kind| kind == what);
        let mut members = if shows("qemu") { world.pool_members(&vms) } else { Vec::new() };
        for storage in storages.iter().filter(|_| shows("storage")) {
            for node in self.storages.get(storage).into_iter().flatten() {
                members.push(json!({"id": format!("storage/{node}/{storage}"), "node": node,
                    "storage": storage, "type": "storage", "status": "available"}));
            }
        }
        let mut answer = json!({"poolid": name, "members": members});
        if let Some(comment) = comment {
            answer["comment"] = comment.into();
        }
        Ok(answer)
    }

    fn create_pool(&self, name: String, call: &Call) -> Outcome {
        let what = "create pool";
        let mut state = self.state();
        if state.pools.contains_key(&name) {
            return Err(failed(what, &format!("pool '{name}' already exists")));
        }
        if let Some((parent, _)) = name.rsplit_once('/')
            && !state.pools.contains_key(parent)
        {
            return Err(failed(
                what,
                &format!("parent '{parent}' of pool '{name}' does not exist"),
            ));
        }
        let pool = Pool { comment: call.params.text("comment"), ..Pool::default() };
        state.pools.insert(name, pool);
        Ok(Answer::null())
    }

    fn update_pool(&self, name: &str, call: &Call) -> Outcome {
        let text = |name: &str| call.params.text(name).unwrap_or_default();
        let (vms, storages) = (text("vms"), text("storage"));
        let removing = call.params.flag("delete");
        if !self.state().pools.contains_key(name) {
            return Err(failed("update pools", &format!("pool '{name}' does not exist")));
        }
        for vmid in split_list(&vms) {
            self.require_modify(&call.caller, &format!("/vms/{vmid}"))?;
        }
        for storage in split_list(&storages) {
            self.require(&call.caller, &format!("/storage/{storage}"), &["Datastore.Allocate"])?;
        }
        let mut state = self.state();
        if let (Some(comment), Some(pool)) =
            (call.params.text("comment"), state.pools.get_mut(name))
        {
            pool.comment = Some(comment);
        }
        for vmid in split_list(&vms).filter_map(|vmid| vmid.parse().ok()) {
            change_guest(&mut state, name, vmid, removing, call.params.flag("allow-move"))
                .map_err(|why| failed("update pools", &why))?;
        }
        for storage in split_list(&storages) {
            change_storage(&mut state, name, storage, removing)
                .map_err(|why| failed("update pools", &why))?;
        }
        Ok(Answer::null())
    }

    fn delete_pool(&self, name: &str) -> Outcome {
        let refuse = |why: String| Err(failed("delete pool", &why));
        let mut state = self.state();
        let Some(pool) = state.pools.get(name) else {
            return refuse(format!("pool '{name}' does not exist"));
        };
        let below = format!("{name}/");
        if let Some(child) = state.pools.keys().find(|other| other.starts_with(&below)) {
            return refuse(format!("pool '{name}' is not empty (contains pool '{child}')"));
        }
        if let Some(vmid) = pool.vms.first() {
            return refuse(format!("pool '{name}' is not empty (contains VM {vmid})"));
        }
        if let Some(storage) = pool.storages.first() {
            return refuse(format!("pool '{name}' is not empty (contains storage '{storage}')"));
        }
        state.pools.remove(name);
        state.acl.remove(&format!("/pool/{name}"));
        Ok(Answer::null())
    }
}

fn change_guest(
    state: &mut State,
    name: &str,
    vmid: u32,
    removing: bool,
    may_move: bool,
) -> Result<(), String> {
    let current = state.pool_of(vmid).cloned();
    let own = current.as_deref() == Some(name);
    if removing {
        if !own {
            return Err(format!("VM {vmid} is not a pool member"));
        }
    } else if own {
        return Err(format!("VM {vmid} is already a pool member"));
    } else if let Some(other) = &current
        && !may_move
    {
        return Err(format!(
            "VM {vmid} belongs already to pool '{other}' and 'allow-move' is not set"
        ));
    }
    for pool in state.pools.values_mut() {
        pool.vms.remove(&vmid);
    }
    if let (false, Some(pool)) = (removing, state.pools.get_mut(name)) {
        pool.vms.insert(vmid);
    }
    Ok(())
}

fn change_storage(
    state: &mut State,
    name: &str,
    storage: &str,
    removing: bool,
) -> Result<(), String> {
    let Some(pool) = state.pools.get_mut(name) else { return Ok(()) };
    let changed = if removing {
        pool.storages.remove(storage)
    } else {
        pool.storages.insert(storage.to_owned())
    };
    match (changed, removing) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("Storage '{storage}' is not a pool member")),
        (false, false) => Err(format!("Storage '{storage}' is already a pool member")),
    }
}
