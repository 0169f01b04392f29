//! The parameters of services, as records have them.

use serde_json::{Value, json};

use crate::echo::{Echo, EchoBy, Reply};
use crate::onesided::{OneSided, Puts, Remote};
use crate::rpc::{RequestBy, Rpc, Service};
use adverb_results::Word as _;
use adverb_units::Span;
use adverb_workload::pattern::Posting;

impl Rpc {
    /// Returns the program's name and its parameters, by name; `offered` are the requests per second that clients of an
    /// open pace send.
    pub fn parameters(&self, offered: Option<f64>) -> (&'static str, Value) {
        let (name, mut params) = match self.service {
            Service::Sequencer(RequestBy::Write) => ("sequencer", json!({ "by": "rpc" })),
            Service::Sequencer(RequestBy::HeaderOnly) => ("sequencer", json!({ "by": "rpc-imm" })),
            Service::Store(store) => {
                let params = json!({
                    "by": "rpc", "value_bytes": store.value, "put_ratio": store.put_ratio,
                    "items": store.items,
                });
                ("kv", params)
            }
        };
        let clients = &self.clients;
        params["server_cores"] = self.serving.cores.into();
        params["offered_per_s"] = offered.into();
        let counts = [clients.threads, clients.outstanding, clients.machines];
        let serving = &self.serving;
        add_common(&mut params, counts, (serving.qps_per_port, serving.posting));
        (name, params)
    }
}

impl OneSided {
    /// Returns the program's name and its parameters, by name.
    pub fn parameters(&self) -> (&'static str, Value) {
        let clients = &self.clients;
        let counts = [clients.threads, clients.outstanding, clients.machines];
        let posting = (clients.qps, clients.posting);
        let Remote::Items(items) = &self.remote else {
            let mut params = json!({ "by": "atomics" });
            add_common(&mut params, counts, posting);
            return ("sequencer", params);
        };
        let mut params = json!({
            "by": "memory", "value_bytes": items.records.last(), "put_ratio": items.put_ratio,
            "items": items.items, "reads": items.records.len(),
        });
        params["puts"] = match items.puts {
            Puts::Lock => "lock",
            Puts::Ask { .. } => "ask",
        }
        .into();
        add_common(&mut params, counts, posting);
        if let Puts::Ask { cores, .. } = items.puts {
            params["server_cores"] = cores.into();
        }
        ("kv", params)
    }
}

impl Echo {
    /// Returns the program's name and its parameters, by name; `offered` are the requests per second that clients of an
    /// open pace send.
    pub fn parameters(&self, offered: Option<f64>) -> (&'static str, Value) {
        let clients = &self.clients;
        let mut params = json!({
            "by": self.by.word(), "clients": clients.threads, "outstanding": clients.outstanding,
            "machines": clients.machines, "server_cores": self.cores, "offered_per_s": offered,
        });
        if self.content == Reply::Number {
            return ("sequencer", params);
        }
        let transport = match self.by {
            EchoBy::Tcp => "tcp".to_owned(),
            _ => self.transport.to_string().to_lowercase(),
        };
        params["transport"] = transport.into();
        params["request_bytes"] = self.request.into();
        params["reply_bytes"] = self.reply.into();
        params["completion"] = json!(self.wait);
        if self.think > Span::ZERO {
            params["think_ns"] = self.think.as_ns_f64().into();
        }
        ("rpc", params)
    }
}

/// Adds the parameters that both have.
fn add_common(
    params: &mut Value,
    [clients, outstanding, machines]: [u32; 3],
    (qps, posting): (u32, Posting),
) {
    params["clients"] = clients.into();
    params["outstanding"] = outstanding.into();
    params["machines"] = machines.into();
    params["qps"] = qps.into();
    params["batch"] = posting.requests().into();
}
