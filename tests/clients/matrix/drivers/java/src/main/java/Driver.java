import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.HttpClientSseClientTransport;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import tools.jackson.databind.json.JsonMapper;

/** The official Java SDK. The arguments and the output are those of ../../../../python/driver.py. */
public final class Driver {
  private static final int SECONDS = 30;
  private static final JsonMapper JSON = new JsonMapper();

  /** A feature, which returns what the client saw. */
  private interface Feature extends Callable<Object> {}

  private final McpSyncClient client;
  private final BlockingQueue<List<Object>> progress = new LinkedBlockingQueue<>();
  private final BlockingQueue<List<Object>> logged = new LinkedBlockingQueue<>();
  private final BlockingQueue<String> changed = new LinkedBlockingQueue<>();

  private Driver(String transport, String target) {
    client =
        McpClient.sync(transportTo(transport, target))
            .requestTimeout(Duration.ofSeconds(SECONDS))
            .capabilities(
                McpSchema.ClientCapabilities.builder().roots(true).sampling().elicitation().build())
            .roots(new McpSchema.Root("file:///work", "work"))
            .sampling(
                request ->
                    McpSchema.CreateMessageResult.builder(McpSchema.Role.ASSISTANT, "Oslo", "m")
                        .build())
            .elicitation(
                request ->
                    new McpSchema.ElicitResult(
                        McpSchema.ElicitResult.Action.ACCEPT, Map.of("city", "Rome", "days", 3)))
            .progressConsumer(
                step -> progress.add(Arrays.asList(step.progress(), step.total(), step.message())))
            .loggingConsumer(
                message -> logged.add(List.of(plain(message.level()), message.data())))
            .resourcesUpdateConsumer(contents -> changed.add("resource"))
            .toolsChangeConsumer(tools -> changed.add("tools"))
            .build();
    client.initialize();
  }

  private static McpClientTransport transportTo(String transport, String target) {
    if (transport.equals("stdio")) {
      List<?> command = JSON.readValue(target, List.class);
      List<String> words = command.stream().map(Object::toString).toList();
      ServerParameters server =
          ServerParameters.builder(words.get(0))
              .args(words.subList(1, words.size()))
              .env(System.getenv())
              .build();
      return new StdioClientTransport(server, McpJsonDefaults.getMapper());
    }
    URI url = URI.create(target);
    String base = url.getScheme() + "://" + url.getAuthority();
    if (transport.equals("sse")) {
      return HttpClientSseClientTransport.builder(base).sseEndpoint(url.getPath()).build();
    }
    return HttpClientStreamableHttpTransport.builder(base)
        .endpoint(url.getPath())
        .openConnectionOnStartup(true)
        .build();
  }

  private Map<String, Feature> features() {
    Map<String, Object> trip =
        Map.of("city", "Oslo", "stops", List.of(Map.of("name", "Bergen", "nights", 2)));
    Map<String, Object> plan = Map.of("trip", trip, "tags", List.of("by train", "cheap"));
    Map<String, Feature> features = new LinkedHashMap<>();
    features.put("tools", this::tools);
    features.put("pagination", this::tools);
    features.put("call", () -> text(call("greet", Map.of("name", "Zoë 🎉"))));
    features.put("no_arguments", () -> text(call("revision", Map.of())));
    features.put("nested_arguments", () -> text(call("plan", plan)));
    features.put("parallel_calls", this::parallelCalls);
    features.put(
        "structured_results", () -> call("measure", Map.of("city", "Oslo")).structuredContent());
    features.put("content_types", () -> types(call("show", Map.of())));
    features.put("tool_errors", this::toolErrors);
    features.put("bad_arguments", () -> call("greet", Map.of()).isError());
    features.put("unknown_tool", this::unknownTool);
    features.put("progress", this::progress);
    features.put("logging", this::logging);
    features.put("elicitation", () -> text(call("ask_user", Map.of())));
    features.put("sampling", () -> text(call("ask_model", Map.of())));
    features.put("roots", () -> text(call("ask_roots", Map.of())));
    features.put("resources", this::resources);
    features.put("templates", this::templates);
    features.put("subscriptions", this::subscriptions);
    features.put("prompts", this::prompts);
    features.put("completion", this::completion);
    features.put("list_changes", this::listChanges);
    features.put("ping", this::ping);
    features.put("resumption", () -> text(call("drop", Map.of())));
    return features;
  }

  private McpSchema.CallToolResult call(String name, Map<String, Object> arguments) {
    return client.callTool(
        McpSchema.CallToolRequest.builder().name(name).arguments(arguments).build());
  }

  private Object tools() {
    return client.listTools().tools().stream().map(McpSchema.Tool::name).sorted().toList();
  }

  private Object parallelCalls() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(10);
    List<Future<String>> calls = new ArrayList<>();
    for (int n = 0; n < 10; n++) {
      Map<String, Object> arguments = Map.of("name", String.valueOf(n));
      calls.add(threads.submit(() -> text(call("greet", arguments))));
    }
    List<String> texts = new ArrayList<>();
    for (Future<String> call : calls) texts.add(call.get());
    threads.shutdown();
    return texts;
  }

  private Object toolErrors() {
    McpSchema.CallToolResult result = call("fail", Map.of());
    return Boolean.TRUE.equals(result.isError()) ? text(result) : "no error";
  }

  private Object unknownTool() {
    try {
      call("no_such_tool", Map.of());
    } catch (McpError error) {
      return error.getJsonRpcError().code();
    }
    return "no error";
  }

  private Object progress() throws InterruptedException {
    client.callTool(
        McpSchema.CallToolRequest.builder()
            .name("count")
            .arguments(Map.of("steps", 3))
            .progressToken("counting")
            .build());
    List<List<Object>> steps = new ArrayList<>();
    for (int n = 0; n < 3; n++) steps.add(next(progress));
    // Its consumers run in several threads.
    steps.sort(Comparator.comparingDouble(step -> (Double) step.get(0)));
    return steps;
  }

  private Object logging() throws InterruptedException {
    client.setLoggingLevel(McpSchema.LoggingLevel.INFO);
    call("talk", Map.of());
    return List.of(next(logged));
  }

  private Object resources() {
    List<String> uris =
        client.listResources().resources().stream()
            .map(McpSchema.Resource::uri)
            .sorted()
            .toList();
    Object text = read("note://today").get("text");
    String blob = read("note://picture").get("blob").toString().substring(0, 6);
    return Map.of("uris", uris, "text", text, "blob", blob);
  }

  private Object templates() {
    List<String> templates =
        client.listResourceTemplates().resourceTemplates().stream()
            .map(McpSchema.ResourceTemplate::uriTemplate)
            .toList();
    return Map.of("templates", templates, "text", read("note://by-day/Monday").get("text"));
  }

  private Map<?, ?> read(String uri) {
    McpSchema.ReadResourceRequest request = new McpSchema.ReadResourceRequest(uri);
    return JSON.convertValue(client.readResource(request).contents().get(0), Map.class);
  }

  private Object subscriptions() throws InterruptedException {
    client.subscribeResource(new McpSchema.SubscribeRequest("note://today"));
    call("change_note", Map.of());
    return next(changed).equals("resource") ? "notified" : "something else";
  }

  private Object listChanges() throws InterruptedException {
    call("add_tool", Map.of());
    next(changed);
    return client.listTools().tools().stream().anyMatch(tool -> tool.name().equals("added"));
  }

  private Object prompts() {
    List<String> names =
        client.listPrompts().prompts().stream().map(McpSchema.Prompt::name).toList();
    McpSchema.GetPromptResult prompt =
        client.getPrompt(new McpSchema.GetPromptRequest("recommend", Map.of("city", "Rome")));
    McpSchema.Content content = prompt.messages().get(0).content();
    return Map.of("names", names, "text", ((McpSchema.TextContent) content).text());
  }

  private Object completion() {
    McpSchema.CompleteRequest request =
        new McpSchema.CompleteRequest(
            new McpSchema.PromptReference("recommend"),
            new McpSchema.CompleteRequest.CompleteArgument("city", "O"));
    return client.completeCompletion(request).completion().values();
  }

  private Object ping() {
    client.ping();
    return "pong";
  }

  private static <T> T next(BlockingQueue<T> heard) throws InterruptedException {
    T value = heard.poll(10, TimeUnit.SECONDS);
    if (value == null) throw new IllegalStateException("no notification after 10 s");
    return value;
  }

  private static String text(McpSchema.CallToolResult result) {
    StringBuilder text = new StringBuilder();
    for (McpSchema.Content content : result.content()) {
      if (content instanceof McpSchema.TextContent item) text.append(item.text());
    }
    return text.toString();
  }

  private static List<String> types(McpSchema.CallToolResult result) {
    return result.content().stream().map(McpSchema.Content::type).toList();
  }

  /** A value as it is on the wire. */
  private static Object plain(Object value) {
    return JSON.convertValue(value, Object.class);
  }

  private static Object reconnect(String transport, String target) {
    List<String> texts = new ArrayList<>();
    for (String name : List.of("first", "second")) {
      Driver driver = new Driver(transport, target);
      texts.add(text(driver.call("greet", Map.of("name", name))));
      driver.client.closeGracefully();
    }
    return texts;
  }

  private static void report(String name, Feature feature) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("feature", name);
    try {
      if (feature == null) line.put("unsupported", "has no such feature");
      else line.put("saw", feature.call());
    } catch (Exception error) {
      line.put("error", error.toString());
    }
    System.out.println(JSON.writeValueAsString(line));
  }

  public static void main(String[] arguments) {
    String transport = arguments[0];
    String target = arguments[1];
    List<String> names = List.of(arguments).subList(3, arguments.length);
    Driver driver = new Driver(transport, target);
    Map<String, Feature> features = driver.features();
    for (String name : names) {
      if (!name.equals("reconnect")) report(name, features.get(name));
    }
    driver.client.closeGracefully();
    if (names.contains("reconnect")) report("reconnect", () -> reconnect(transport, target));
    System.exit(0);
  }
}
