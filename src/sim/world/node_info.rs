//! Information about a node: PCI devices, subscription, logs, DNS; and the monitor calls of VMs.

use serde_json::{Value, json};

use super::context::{CallContext, failed};
use crate::call::{Answer, Outcome};

/// The number of lines of a log without a limit.
const DEFAULT_LOG_LINES: u64 = 50;

/// The PCI devices of every node, which is itself a virtual machine: class and device, by slot.
const PCI_DEVICES: [(&str, &str); 3] =
    [("0x018000", "0x1042"), ("0x020000", "0x1041"), ("0xffff00", "0x1044")];

/// Vendor and device at a PCI address, such as `1af4:1042`; none if the slot is empty.
pub(crate) fn pci_id(address: &str) -> Option<String> {
    let mut slots = PCI_DEVICES.iter().zip(1..);
    let found = slots.find(|(_, slot)| address == format!("0000:00:{slot:02}.0"));
    found.map(|((_, device), _)| format!("1af4:{}", device.trim_start_matches("0x")))
}

/// `GET /nodes/{node}/hardware/pci`.
pub(crate) fn pci() -> Outcome {
    let lines = PCI_DEVICES.iter().zip(1..).map(|((class, device), slot)| {
        json!({
            "id": format!("0000:00:{slot:02}.0"), "class": class, "device": device,
            "vendor": "0x1af4", "subsystem_device": device, "subsystem_vendor": "0x1af4",
            "iommugroup": -1,
        })
    });
    Ok(Answer::new(lines.collect::<Vec<Value>>().into()))
}

/// `GET /nodes/{node}/subscription`.
pub(crate) fn subscription(ctx: &CallContext) -> Outcome {
    let id: String = ctx.node.bytes().cycle().take(16).map(|byte| format!("{byte:02X}")).collect();
    Ok(Answer::new(json!({
        "status": "notfound", "message": "There is no subscription key", "serverid": id,
        "url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing",
    })))
}

/// `GET /nodes/{node}/syslog`: simulated nodes have no system log.
pub(crate) fn syslog() -> Outcome {
    Ok(Answer::with_total(json!([{ "n": 1, "t": "-- No entries --" }]), 1))
}

/// `GET /cluster/log`: the starts and ends of tasks, newest first.
pub(crate) fn log(ctx: &CallContext) -> Outcome {
    let most =
        usize::try_from(ctx.number("max").unwrap_or(DEFAULT_LOG_LINES)).unwrap_or(usize::MAX);
    let state = ctx.cluster.state();
    let all = ctx.has("/", "Sys.Syslog");
    let mut lines = Vec::new();
    for node in state.nodes.keys() {
        for task in state.tasks.recent(node) {
            let (user, _) = task.upid.user_and_token();
            if !all && user != ctx.call.caller.userid {
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
pub(crate) fn dns() -> Outcome {
    Ok(Answer::new(json!({ "dns1": "192.0.2.53" })))
}

/// `GET /nodes/{node}/config`.
pub(crate) fn config() -> Outcome {
    Ok(Answer::new(json!({})))
}

/// `POST …/monitor`: only `info status` is implemented.
pub(crate) fn monitor(ctx: &CallContext) -> Outcome {
    let command = ctx.text("command").unwrap_or_default();
    let process = ctx.cluster.vm_process(&ctx.node, ctx.vmid).map_err(failed)?;
    let Some(process) = process else {
        return Err(failed(format!("VM {} is not running", ctx.vmid)));
    };
    let text = match command.as_str() {
        "info status" if process.paused => "VM status: paused\r\n".to_owned(),
        "info status" => "VM status: running\r\n".to_owned(),
        other => format!("unknown command: '{other}'\r\n"),
    };
    Ok(Answer::new(text.into()))
}

/// `PUT …/sendkey`.
pub(crate) fn sendkey(ctx: &CallContext) -> Outcome {
    let process = ctx.cluster.vm_process(&ctx.node, ctx.vmid).map_err(failed)?;
    match process {
        Some(_) => Ok(Answer::null()),
        None => Err(failed(format!("VM {} is not running", ctx.vmid))),
    }
}
