//! The official Rust SDK: `contender stdio` or `contender http|stateless|stream PORT`.

use std::{
    env,
    error::Error,
    sync::{Arc, RwLock},
};

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler, ServiceExt,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
        wrapper::Parameters,
    },
    model::*,
    schemars,
    service::{NotificationContext, RequestContext, SubscriptionContext},
    tool, tool_router,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

#[derive(Deserialize, schemars::JsonSchema)]
struct Numbers {
    a: i64,
    b: i64,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Words {
    text: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Steps {
    n: u32,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Total {
    result: i64,
}

#[derive(Serialize, schemars::JsonSchema)]
struct User {
    id: i64,
    name: String,
    email: String,
    active: bool,
    tags: Vec<String>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Users {
    result: Vec<User>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Address {
    #[schemars(length(min = 1, max = 100))]
    street: String,
    #[schemars(regex(pattern = r"^[0-9]{5}$"))]
    postcode: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Customer {
    #[schemars(length(min = 1, max = 100))]
    name: String,
    address: Address,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Item {
    #[schemars(regex(pattern = r"^[A-Z]{2}[0-9]{4}$"))]
    sku: String,
    #[schemars(range(min = 1, max = 100))]
    quantity: i64,
    #[schemars(range(min = 0.0))]
    price: f64,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Shipping {
    Normal,
    Express,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Order {
    customer: Customer,
    #[schemars(length(min = 1, max = 20))]
    items: Vec<Item>,
    shipping: Shipping,
}

impl Order {
    /// The SDK decodes types and does not check constraints, so the tool does.
    fn check(&self) -> Result<(), ErrorData> {
        let is_text = |text: &str| (1..=100).contains(&text.chars().count());
        let has_digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_sku = |sku: &str| {
            sku.len() == 6
                && sku.bytes().take(2).all(|byte| byte.is_ascii_uppercase())
                && has_digits(&sku[2..], 4)
        };
        let is_valid = is_text(&self.customer.name)
            && is_text(&self.customer.address.street)
            && has_digits(&self.customer.address.postcode, 5)
            && (1..=20).contains(&self.items.len())
            && self.items.iter().all(|item| {
                is_sku(&item.sku) && (1..=100).contains(&item.quantity) && item.price >= 0.0
            })
            && matches!(self.shipping, Shipping::Normal | Shipping::Express);
        if is_valid {
            Ok(())
        } else {
            Err(ErrorData::invalid_params("this is not an order", None))
        }
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Walk,
    Ride,
}

/// What `route` decodes: the SDK does not check arguments by a JSON Schema.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Route {
    from: String,
    to: String,
    mode: Mode,
    #[serde(default)]
    stops: Vec<String>,
}

/// The schema of `route`, the same in all contenders.
fn route_schema() -> Arc<JsonObject> {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "from": { "type": "string", "minLength": 1, "maxLength": 100 },
            "to": { "type": "string", "minLength": 1, "maxLength": 100 },
            "mode": { "enum": ["walk", "ride"] },
            "stops": { "type": "array", "items": { "type": "string" }, "maxItems": 10 }
        },
        "required": ["from", "to", "mode"],
        "additionalProperties": false
    });
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

fn make_user(id: i64) -> User {
    User {
        id,
        name: format!("user {id}"),
        email: "user@example.com".into(),
        active: true,
        tags: vec!["a".into()],
    }
}

/// What all sessions share: the tools, which can grow, and the news that they have.
#[derive(Clone)]
struct Contender {
    router: Arc<RwLock<Arc<ToolRouter<Self>>>>,
    grown: watch::Sender<usize>,
}

#[tool_router]
impl Contender {
    fn new() -> Self {
        let mut router = Self::tool_router();
        let more = env::var("BENCH_TOOLS")
            .ok()
            .and_then(|text| text.parse().ok());
        for number in 0..more.unwrap_or(0) {
            router.add_route(one_more(format!("tool_{number}")));
        }
        Self {
            router: Arc::new(RwLock::new(Arc::new(router))),
            grown: watch::Sender::new(0),
        }
    }

    fn tools(&self) -> Arc<ToolRouter<Self>> {
        self.router.read().unwrap().clone()
    }

    #[tool(description = "Add two numbers.")]
    async fn add(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> String {
        (a + b).to_string()
    }

    #[tool(description = "Add two numbers after a turn of the loop.")]
    async fn wait(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> String {
        tokio::task::yield_now().await;
        (a + b).to_string()
    }

    #[tool(description = "Add two numbers in a thread.")]
    async fn block(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> String {
        let sum = tokio::task::spawn_blocking(move || a + b).await;
        sum.expect("adding does not panic").to_string()
    }

    #[tool(description = "Give the text back.")]
    async fn echo(&self, Parameters(Words { text }): Parameters<Words>) -> String {
        text
    }

    #[tool(description = "Add two numbers, as a structured result.")]
    async fn total(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> Json<Total> {
        Json(Total { result: a + b })
    }

    #[tool(description = "Return an object.")]
    async fn user(&self, Parameters(Numbers { a, .. }): Parameters<Numbers>) -> Json<User> {
        Json(make_user(a))
    }

    #[tool(description = "Return a list of objects.")]
    async fn users(&self, Parameters(Numbers { a, .. }): Parameters<Numbers>) -> Json<Users> {
        Json(Users {
            result: (a..a + 100).map(make_user).collect(),
        })
    }

    #[tool(description = "Count what is ordered.")]
    async fn order(&self, Parameters(order): Parameters<Order>) -> Result<String, ErrorData> {
        order.check()?;
        let count: i64 = order.items.iter().map(|item| item.quantity).sum();
        Ok(count.to_string())
    }

    #[tool(description = "Describe a route.", input_schema = route_schema())]
    async fn route(&self, Parameters(route): Parameters<Route>) -> Result<String, ErrorData> {
        let is_place = |text: &str| (1..=100).contains(&text.chars().count());
        if !is_place(&route.from) || !is_place(&route.to) || route.stops.len() > 10 {
            return Err(ErrorData::invalid_params("this is not a route", None));
        }
        let mode = match route.mode {
            Mode::Walk => "walk",
            Mode::Ride => "ride",
        };
        Ok(format!("{mode} from {} to {}", route.from, route.to))
    }

    #[tool(description = "Tell of n steps, then answer.")]
    async fn progress(
        &self,
        Parameters(Steps { n }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            for step in 1..=n {
                let told =
                    ProgressNotificationParam::new(token.clone(), step.into()).with_total(n.into());
                // Where replies are JSON there is no way for it to go out.
                let _ = context.peer.notify_progress(told).await;
            }
        }
        Ok(n.to_string())
    }

    #[tool(description = "Add a tool, so that those who listen hear that the list has changed.")]
    async fn grow(&self) -> String {
        let name = format!("grown_{}", *self.grown.borrow());
        let mut router = ToolRouter::clone(&self.tools());
        router.add_route(one_more(name.clone()));
        *self.router.write().unwrap() = Arc::new(router);
        self.grown.send_modify(|count| *count += 1);
        name
    }
}

/// A tool that adds, under a name of its own.
fn one_more(name: String) -> ToolRoute<Contender> {
    let mut tool = Contender::add_tool_attr();
    tool.name = name.into();
    ToolRoute::new(tool, Contender::add)
}

impl ServerHandler for Contender {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(capabilities.build()).with_server_info(Implementation::new("rust", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().list_all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.tools()
            .call(ToolCallContext::new(self, request, context))
            .await
    }

    /// A session of the older revisions hears of it as long as it is open.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut grown = self.grown.subscribe();
        tokio::spawn(async move {
            while grown.changed().await.is_ok()
                && context.peer.notify_tool_list_changed().await.is_ok()
            {}
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    /// A subscription of the newest revision.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut grown = self.grown.subscribe();
        while let Some(Ok(())) = tokio::select! {
            changed = grown.changed() => Some(changed),
            () = context.cancelled() => None,
        } {
            if context.sink().notify_tool_list_changed().await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

async fn serve_http(contender: Contender, mode: &str, port: &str) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(mode != "stateless")
        .with_json_response(mode != "stream");
    let service = StreamableHttpService::new(
        move || Ok(contender.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().collect();
    let contender = Contender::new();
    if words[1] == "stdio" {
        contender.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    serve_http(contender, &words[1], &words[2]).await
}
