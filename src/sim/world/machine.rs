//! What a node tells of the machine it is: devices, subscription, logs, name service, and the
//! console calls on its guests.

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use crate::call::{Answer, Outcome};

/// Lines a log shows when no limit is set.
const LINES: u64 = 50;

/// The devices of a virtual machine, which each node is itself: class and device, by slot.
const DEVICES: [(&str, &str); 3] =
    [("0x018000", "0x1042"), ("0x020000", "0x1041"), ("0xffff00", "0x1044")];

/// Vendor and device of what is at an address, such as `1af4:1042`; none where nothing is.
pub fn pci_id(address: &str) -> Option<String> {
    let mut slots = DEVICES.iter().zip(1..);
    let found = slots.find(|(_, slot)| address == format!("0000:00:{slot:02}.0"));
    found.map(|((_, device), _)| format!("1af4:{}", device.trim_start_matches("0x")))
}

/// `GET /nodes/{node}/hardware/pci`.
pub fn pci() -> Outcome {
    let lines = DEVICES.iter().zip(1..).map(|((class, device), slot)| {
        json!({
            "id": format!("0000:00:{slot:02}.0"), "class": class, "device": device,
            "vendor": "0x1af4", "subsystem_device": device, "subsystem_vendor": "0x1af4",
            "iommugroup": -1,
        })
    });
    Ok(Answer::new(lines.collect::<Vec<Value>>().into()))
}

/// `GET /nodes/{node}/subscription`.
pub fn subscription(ask: &Ask) -> Outcome {
    let id: String = ask.node.bytes().cycle().take(16).map(|byte| format!("{byte:02X}")).collect();
    Ok(Answer::new(json!({
        "status": "notfound", "message": "There is no subscription key", "serverid": id,
        "url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing",
    })))
}

/// `GET /nodes/{node}/syslog`: simulated nodes keep none.
pub fn syslog() -> Outcome {
    Ok(Answer::with_total(json!([{ "n": 1, "t": "-- No entries --" }]), 1))
}

/// `GET /cluster/log`: beginnings and ends of tasks, the newest first.
pub fn log(ask: &Ask) -> Outcome {
    let most = usize::try_from(ask.number("max").unwrap_or(LINES)).unwrap_or(usize::MAX);
    let state = ask.cluster.state();
    let all = ask.has("/", "Sys.Syslog");
    let mut lines = Vec::new();
    for node in state.nodes.keys() {
        for task in state.tasks.recent(node) {
            let (user, _) = task.upid.user_and_token();
            if !all && user != ask.call.caller.userid {
                continue;
            }
            if let Some(end) = &task.end {
                lines.push((
                    end.time,
                    node,
                    user,
                    format!("end task {} {}", task.upid, end.status),
                ));
            }
            let text = format!("starting task {}", task.upid);
            lines.push((task.upid.starttime, node, user, text));
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.0));
    let shown = lines.iter().take(most).zip(0..).map(|((time, node, user, text), n)| {
        let uid = lines.len() - n;
        json!({
            "uid": uid.to_string(), "id": format!("{uid}:{node}"), "time": time, "node": node,
            "pid": 1_000, "user": user, "tag": "pvedaemon", "pri": 6, "msg": text,
        })
    });
    Ok(Answer::new(shown.collect::<Vec<Value>>().into()))
}

/// `GET /nodes/{node}/dns`.
pub fn dns() -> Outcome {
    Ok(Answer::new(json!({ "dns1": "192.0.2.53" })))
}

/// `GET /nodes/{node}/config`.
pub fn config() -> Outcome {
    Ok(Answer::new(json!({})))
}

/// `POST …/monitor`: only what it says of the guest's state is known here.
pub fn monitor(ask: &Ask) -> Outcome {
    let command = ask.text("command").unwrap_or_default();
    let run = ask.cluster.runs(&ask.node, ask.vmid).map_err(failed)?;
    let Some(run) = run else {
        return Err(failed(format!("VM {} is not running", ask.vmid)));
    };
    let text = match command.as_str() {
        "info status" if run.paused => "VM status: paused\r\n".to_owned(),
        "info status" => "VM status: running\r\n".to_owned(),
        other => format!("unknown command: '{other}'\r\n"),
    };
    Ok(Answer::new(text.into()))
}

/// `PUT …/sendkey`.
pub fn sendkey(ask: &Ask) -> Outcome {
    let run = ask.cluster.runs(&ask.node, ask.vmid).map_err(failed)?;
    match run {
        Some(_) => Ok(Answer::null()),
        None => Err(failed(format!("VM {} is not running", ask.vmid))),
    }
}
