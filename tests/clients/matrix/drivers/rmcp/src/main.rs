//! The official Rust SDK. The arguments and the output are those of ../../python/driver.py.

// Newer revisions have no sampling, roots and logging, but servers of older ones use them.
#![expect(deprecated)]

use std::{env, error::Error, process, time::Duration};

use futures::future::{BoxFuture, FutureExt, try_join_all};
use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceError,
    model::*,
    service::{
        ClientLifecycleMode, NotificationContext, PeerRequestOptions, RequestContext,
        RunningService, serve_client_with_lifecycle,
    },
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};
use tokio::{
    process::Command,
    sync::{Mutex, mpsc},
    time::timeout,
};

const SECONDS: u64 = 30;
const STATELESS: &str = "2026-07-28";

type Failure = Box<dyn Error + Send + Sync>;
type Saw = Result<Value, Failure>;

struct Target {
    transport: String,
    place: String,
    revision: String,
}

/// Answers the server's requests, and passes its notifications on.
struct Handler {
    heard: mpsc::UnboundedSender<(&'static str, Value)>,
}

impl Handler {
    fn pass_on(&self, method: &'static str, params: impl serde::Serialize) {
        let params = serde_json::to_value(params).expect("a notification is JSON");
        // Nobody listens any more when the driver ends.
        let _ = self.heard.send((method, params));
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        serde_json::from_value(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
            "clientInfo": {"name": "rmcp", "version": "1.0.0"},
        }))
        .expect("the client's information is valid")
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({"city": "Rome", "days": 3});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let answer = SamplingMessage::assistant_text("Oslo");
        Ok(CreateMessageResult::new(answer, "m".into()))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///work")]))
    }

    async fn on_progress(&self, step: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.pass_on("progress", step);
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.pass_on("log", message);
    }

    async fn on_resource_updated(
        &self,
        resource: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.pass_on("updated", resource);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.pass_on("changed", json!({}));
    }
}

struct Driver {
    service: RunningService<RoleClient, Handler>,
    heard: Mutex<mpsc::UnboundedReceiver<(&'static str, Value)>>,
    is_stateless: bool,
}

impl Driver {
    async fn connect(target: &Target) -> Result<Self, Failure> {
        let (sender, heard) = mpsc::unbounded_channel();
        let handler = Handler { heard: sender };
        let is_stateless = target.revision == STATELESS;
        let lifecycle = if is_stateless {
            let newest = ProtocolVersion::LATEST;
            ClientLifecycleMode::Discover { preferred_versions: vec![newest] }
        } else {
            ClientLifecycleMode::Initialize
        };
        let service = if target.transport == "stdio" {
            let words: Vec<String> = serde_json::from_str(&target.place)?;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            let transport = TokioChildProcess::new(command)?;
            serve_client_with_lifecycle(handler, transport, lifecycle).await?
        } else {
            let transport = StreamableHttpClientTransport::from_uri(target.place.as_str());
            serve_client_with_lifecycle(handler, transport, lifecycle).await?
        };
        let heard = Mutex::new(heard);
        Ok(Self { service, heard, is_stateless })
    }

    async fn feature(&self, name: &str) -> Option<Saw> {
        let trip = json!({"city": "Oslo", "stops": [{"name": "Bergen", "nights": 2}]});
        let saw = match name {
            "tools" | "pagination" => self.list_tools().await,
            "call" => self.text_of("greet", json!({"name": "Zoë 🎉"})).await,
            "no_arguments" => self.text_of("revision", Value::Null).await,
            "nested_arguments" => {
                let arguments = json!({"trip": trip, "tags": ["by train", "cheap"]});
                self.text_of("plan", arguments).await
            }
            "parallel_calls" => self.parallel_calls().await,
            "structured_results" => self
                .call("measure", json!({"city": "Oslo"}))
                .await
                .map(|result| result["structuredContent"].clone()),
            "content_types" => self.call("show", Value::Null).await.map(|result| types_in(&result)),
            "tool_errors" => self.call("fail", Value::Null).await.and_then(|result| {
                if result["isError"] == true { Ok(text_in(&result)) } else { Err("no error".into()) }
            }),
            "bad_arguments" => {
                self.call("greet", json!({})).await.map(|result| result["isError"].clone())
            }
            "unknown_tool" => self.unknown_tool().await,
            "progress" => self.progress().await,
            "logging" => self.logging().await,
            "cancellation" => self.cancellation().await,
            "elicitation" => self.text_of("ask_user", Value::Null).await,
            "sampling" => self.text_of("ask_model", Value::Null).await,
            "roots" => self.text_of("ask_roots", Value::Null).await,
            "resources" => self.resources().await,
            "templates" => self.templates().await,
            "subscriptions" => self.subscriptions().await,
            "prompts" => self.prompts().await,
            "completion" => self.completion().await,
            "list_changes" => self.list_changes().await,
            "ping" => self.ping().await,
            "resumption" => self.text_of("drop", Value::Null).await,
            _ => return None,
        };
        Some(saw)
    }

    async fn call(&self, name: &'static str, arguments: Value) -> Saw {
        let result = self.service.call_tool(call_of(name, arguments)).await?;
        Ok(serde_json::to_value(result)?)
    }

    async fn text_of(&self, name: &'static str, arguments: Value) -> Saw {
        Ok(text_in(&self.call(name, arguments).await?))
    }

    async fn list_tools(&self) -> Saw {
        let tools = self.service.list_all_tools().await?;
        let mut names: Vec<_> = tools.iter().map(|tool| tool.name.to_string()).collect();
        names.sort();
        Ok(json!(names))
    }

    async fn parallel_calls(&self) -> Saw {
        let calls = (0..10).map(|n| self.text_of("greet", json!({"name": n.to_string()})));
        Ok(json!(try_join_all(calls).await?))
    }

    async fn unknown_tool(&self) -> Saw {
        match self.service.call_tool(call_of("no_such_tool", Value::Null)).await {
            Err(ServiceError::McpError(error)) => Ok(json!(error.code.0)),
            other => Err(format!("expected an error with a code, got {other:?}").into()),
        }
    }

    async fn progress(&self) -> Saw {
        self.call("count", json!({"steps": 3})).await?;
        let mut steps = Vec::new();
        for _ in 0..3 {
            let step = self.hear("progress").await?;
            steps.push(json!([step["progress"], step["total"], step["message"]]));
        }
        Ok(json!(steps))
    }

    async fn logging(&self) -> Saw {
        let mut call = call_of("talk", Value::Null);
        if self.is_stateless {
            let meta = json!({"io.modelcontextprotocol/logLevel": "info"});
            call.meta = Some(serde_json::from_value(meta)?);
        } else {
            self.service.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await?;
        }
        self.service.call_tool(call).await?;
        let message = self.hear("log").await?;
        Ok(json!([[message["level"], message["data"]]]))
    }

    async fn cancellation(&self) -> Saw {
        let request = CallToolRequest::new(call_of("wait_for_ever", Value::Null));
        let options = PeerRequestOptions::no_options();
        let request = ClientRequest::CallToolRequest(request);
        let call = self.service.send_cancellable_request(request, options).await?;
        self.hear("progress").await?;
        call.cancel(None).await?;
        self.text_of("was_cancelled", Value::Null).await
    }

    async fn resources(&self) -> Saw {
        let listed = self.service.list_all_resources().await?;
        let mut uris: Vec<_> = listed.iter().map(|resource| resource.uri.clone()).collect();
        uris.sort();
        let text = self.read("note://today").await?;
        let picture = self.read("note://picture").await?;
        let blob = picture["blob"].as_str().ok_or("no blob")?;
        Ok(json!({"uris": uris, "text": text["text"], "blob": blob[..6]}))
    }

    async fn templates(&self) -> Saw {
        let listed = self.service.list_all_resource_templates().await?;
        let templates: Vec<_> = listed.iter().map(|template| &template.uri_template).collect();
        let text = self.read("note://by-day/Monday").await?;
        Ok(json!({"templates": templates, "text": text["text"]}))
    }

    async fn read(&self, uri: &str) -> Saw {
        let result = self.service.read_resource(ReadResourceRequestParams::new(uri)).await?;
        Ok(serde_json::to_value(result)?["contents"][0].clone())
    }

    async fn subscriptions(&self) -> Saw {
        if self.is_stateless {
            let filter = json!({"resourceSubscriptions": ["note://today"]});
            self.listen_during("change_note", filter).await?;
        } else {
            self.service.subscribe(SubscribeRequestParams::new("note://today")).await?;
            self.call("change_note", Value::Null).await?;
            self.hear("updated").await?;
        }
        Ok(json!("notified"))
    }

    async fn list_changes(&self) -> Saw {
        if self.is_stateless {
            self.listen_during("add_tool", json!({"toolsListChanged": true})).await?;
        } else {
            self.call("add_tool", Value::Null).await?;
            self.hear("changed").await?;
        }
        let tools = self.service.list_all_tools().await?;
        Ok(json!(tools.iter().any(|tool| tool.name == "added")))
    }

    /// Call a tool, and wait for the notification that it causes.
    async fn listen_during(&self, tool: &'static str, filter: Value) -> Result<(), Failure> {
        let mut subscription = self.service.listen(serde_json::from_value(filter)?).await?;
        self.call(tool, Value::Null).await?;
        subscription.next().await?.ok_or("the subscription ended")?;
        subscription.cancel().await?;
        Ok(())
    }

    async fn prompts(&self) -> Saw {
        let listed = self.service.list_all_prompts().await?;
        let names: Vec<_> = listed.iter().map(|prompt| &prompt.name).collect();
        let request = json!({"name": "recommend", "arguments": {"city": "Rome"}});
        let prompt = self.service.get_prompt(serde_json::from_value(request)?).await?;
        let prompt = serde_json::to_value(prompt)?;
        Ok(json!({"names": names, "text": prompt["messages"][0]["content"]["text"]}))
    }

    async fn completion(&self) -> Saw {
        Ok(json!(self.service.complete_prompt_simple("recommend", "city", "O").await?))
    }

    async fn ping(&self) -> Saw {
        let request = ClientRequest::PingRequest(PingRequest::default());
        self.service.send_request(request).await?;
        Ok(json!("pong"))
    }

    /// Wait for the next notification of a kind.
    async fn hear(&self, kind: &str) -> Saw {
        let mut heard = self.heard.lock().await;
        loop {
            let (got, params) = heard.recv().await.ok_or("the connection was closed")?;
            if got == kind {
                return Ok(params);
            }
        }
    }
}

fn call_of(name: &'static str, arguments: Value) -> CallToolRequestParams {
    let mut call = CallToolRequestParams::new(name);
    call.arguments = arguments.as_object().cloned();
    call
}

fn text_in(result: &Value) -> Value {
    let content = result["content"].as_array().into_iter().flatten();
    json!(content.filter_map(|item| item["text"].as_str()).collect::<String>())
}

fn types_in(result: &Value) -> Value {
    let content = result["content"].as_array().into_iter().flatten();
    json!(content.map(|item| item["type"].clone()).collect::<Vec<_>>())
}

async fn reconnect(target: &Target) -> Option<Saw> {
    Some(greet_twice(target).await)
}

async fn greet_twice(target: &Target) -> Saw {
    let mut texts = Vec::new();
    for name in ["first", "second"] {
        let driver = Driver::connect(target).await?;
        texts.push(driver.text_of("greet", json!({"name": name})).await?);
        driver.service.cancel().await?;
    }
    Ok(json!(texts))
}

async fn report(name: &str, feature: BoxFuture<'_, Option<Saw>>) {
    let (key, value) = match timeout(Duration::from_secs(SECONDS), feature).await {
        Err(_) => ("error", json!(format!("not done after {SECONDS} s"))),
        Ok(None) => ("unsupported", json!("has no such feature")),
        Ok(Some(Err(error))) => ("error", json!(error.to_string())),
        Ok(Some(Ok(saw))) => ("saw", saw),
    };
    println!("{}", json!({"feature": name, key: value}));
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().expect("expected TRANSPORT TARGET REVISION FEATURE...");
    let target = Target { transport: next(), place: next(), revision: next() };
    let names: Vec<String> = arguments.collect();
    let driver = Driver::connect(&target).await?;
    for name in names.iter().filter(|name| *name != "reconnect") {
        report(name, driver.feature(name).boxed()).await;
    }
    driver.service.cancel().await?;
    if names.iter().any(|name| name == "reconnect") {
        report("reconnect", reconnect(&target).boxed()).await;
    }
    process::exit(0);
}
