// mcp-go, of mark3labs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"drivers/driver"
)

const stateless = "2026-07-28"

var background = context.Background()

func main() {
	driver.Main(connect)
}

// session is a client, and what the server has sent to it.
type session struct {
	client *client.Client
	target driver.Target
	heard  chan mcp.JSONRPCNotification
}

func connect(target driver.Target) (driver.Client, map[string]driver.Feature, error) {
	place, err := transportTo(target)
	if err != nil {
		return nil, nil, err
	}
	s := &session{target: target, heard: make(chan mcp.JSONRPCNotification, 100)}
	options := []client.ClientOption{
		client.WithElicitationHandler(s),
		client.WithSamplingHandler(s),
		client.WithRootsHandler(s),
	}
	if target.Revision != stateless {
		options = append(options, client.WithLegacyProtocolOnly())
	}
	s.client = client.NewClient(place, options...)
	s.client.OnNotification(func(notification mcp.JSONRPCNotification) {
		s.heard <- notification
	})
	if err := s.client.Start(background); err != nil {
		return nil, nil, err
	}
	request := mcp.InitializeRequest{}
	request.Params.ProtocolVersion = target.Revision
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1.0.0"}
	if _, err := s.client.Initialize(background, request); err != nil {
		return nil, nil, err
	}
	return s, s.features(), nil
}

func transportTo(target driver.Target) (transport.Interface, error) {
	switch target.Transport {
	case "http":
		if target.Revision == stateless {
			return transport.NewStreamableHTTP(target.URL)
		}
		return transport.NewStreamableHTTP(target.URL, transport.WithContinuousListening())
	case "sse":
		return transport.NewSSE(target.URL)
	}
	return transport.NewStdio(target.Command[0], os.Environ(), target.Command[1:]...), nil
}

// What the server asks

func (s *session) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	content := map[string]any{"city": "Rome", "days": 3}
	response := mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: content}
	return &mcp.ElicitationResult{ElicitationResponse: response}, nil
}

func (s *session) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	message := mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("Oslo")}
	return &mcp.CreateMessageResult{SamplingMessage: message, Model: "m"}, nil
}

func (s *session) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///work"}}}, nil
}

// Features

func (s *session) Close() error {
	return s.client.Close()
}

func (s *session) ListTools() ([]string, error) {
	result, err := s.client.ListTools(background, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (s *session) CallTool(name string, arguments map[string]any) (driver.Result, error) {
	request := mcp.CallToolRequest{}
	request.Params.Name = name
	request.Params.Arguments = arguments
	return s.call(background, request)
}

func (s *session) call(ctx context.Context, request mcp.CallToolRequest) (driver.Result, error) {
	got, err := s.client.CallTool(ctx, request)
	if err != nil {
		return driver.Result{}, err
	}
	result := driver.Result{IsError: got.IsError, Structured: got.StructuredContent}
	for _, content := range got.Content {
		item, err := plain(content)
		if err != nil {
			return driver.Result{}, err
		}
		result.Types = append(result.Types, item["type"].(string))
		if text, ok := item["text"].(string); ok {
			result.Text += text
		}
	}
	return result, nil
}

func (s *session) features() map[string]driver.Feature {
	return map[string]driver.Feature{
		"progress":      s.progress,
		"logging":       s.logging,
		"cancellation":  s.cancellation,
		"resources":     s.resources,
		"templates":     s.templates,
		"subscriptions": s.subscriptions,
		"prompts":       s.prompts,
		"completion":    s.completion,
		"list_changes":  s.listChanges,
		"ping": func() (any, error) {
			return "pong", s.client.Ping(background)
		},
	}
}

func (s *session) progress() (any, error) {
	request := mcp.CallToolRequest{}
	request.Params.Name = "count"
	request.Params.Arguments = map[string]any{"steps": 3}
	request.Params.Meta = &mcp.Meta{ProgressToken: "counting"}
	if _, err := s.call(background, request); err != nil {
		return nil, err
	}
	var steps []any
	for range 3 {
		step, err := s.hear("notifications/progress")
		if err != nil {
			return nil, err
		}
		steps = append(steps, []any{step["progress"], step["total"], step["message"]})
	}
	return steps, nil
}

func (s *session) logging() (any, error) {
	call := mcp.CallToolRequest{}
	call.Params.Name = "talk"
	if s.target.Revision == stateless {
		level := map[string]any{"io.modelcontextprotocol/logLevel": "info"}
		call.Params.Meta = &mcp.Meta{AdditionalFields: level}
	} else {
		request := mcp.SetLevelRequest{}
		request.Params.Level = mcp.LoggingLevelInfo
		if err := s.client.SetLevel(background, request); err != nil {
			return nil, err
		}
	}
	if _, err := s.call(background, call); err != nil {
		return nil, err
	}
	message, err := s.hear("notifications/message")
	return []any{[]any{message["level"], message["data"]}}, err
}

func (s *session) cancellation() (any, error) {
	ctx, cancel := context.WithCancel(background)
	request := mcp.CallToolRequest{}
	request.Params.Name = "wait_for_ever"
	request.Params.Meta = &mcp.Meta{ProgressToken: "waiting"}
	go func() {
		_, _ = s.hear("notifications/progress")
		cancel()
	}()
	if _, err := s.call(ctx, request); err == nil {
		return nil, errors.New("the call was answered")
	}
	result, err := s.CallTool("was_cancelled", nil)
	return result.Text, err
}

func (s *session) resources() (any, error) {
	listed, err := s.client.ListResources(background, mcp.ListResourcesRequest{})
	if err != nil {
		return nil, err
	}
	var uris []string
	for _, resource := range listed.Resources {
		uris = append(uris, resource.URI)
	}
	slices.Sort(uris)
	text, err := s.read("note://today")
	if err != nil {
		return nil, err
	}
	picture, err := s.read("note://picture")
	if err != nil {
		return nil, err
	}
	blob := picture["blob"].(string)[:6]
	return map[string]any{"uris": uris, "text": text["text"], "blob": blob}, nil
}

func (s *session) templates() (any, error) {
	listed, err := s.client.ListResourceTemplates(background, mcp.ListResourceTemplatesRequest{})
	if err != nil {
		return nil, err
	}
	var templates []string
	for _, template := range listed.ResourceTemplates {
		templates = append(templates, template.URITemplate.Raw())
	}
	text, err := s.read("note://by-day/Monday")
	return map[string]any{"templates": templates, "text": text["text"]}, err
}

func (s *session) read(uri string) (map[string]any, error) {
	request := mcp.ReadResourceRequest{}
	request.Params.URI = uri
	result, err := s.client.ReadResource(background, request)
	if err != nil {
		return nil, err
	}
	return plain(result.Contents[0])
}

func (s *session) subscriptions() (any, error) {
	if s.target.Revision == stateless {
		stop, err := s.listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"note://today"}})
		if err != nil {
			return nil, err
		}
		defer stop()
	} else {
		request := mcp.SubscribeRequest{}
		request.Params.URI = "note://today"
		if err := s.client.Subscribe(background, request); err != nil {
			return nil, err
		}
	}
	if _, err := s.CallTool("change_note", nil); err != nil {
		return nil, err
	}
	_, err := s.hear("notifications/resources/updated")
	return "notified", err
}

func (s *session) listChanges() (any, error) {
	if s.target.Revision == stateless {
		stop, err := s.listen(mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	if _, err := s.CallTool("add_tool", nil); err != nil {
		return nil, err
	}
	if _, err := s.hear("notifications/tools/list_changed"); err != nil {
		return nil, err
	}
	tools, err := s.ListTools()
	return slices.Contains(tools, "added"), err
}

// listen returns when the server has acknowledged the subscription.
func (s *session) listen(filter mcp.SubscriptionFilter) (func(), error) {
	stop, err := s.client.ListenAsync(background, filter, nil)
	if err != nil {
		return nil, err
	}
	_, err = s.hear("notifications/subscriptions/acknowledged")
	return stop, err
}

func (s *session) prompts() (any, error) {
	listed, err := s.client.ListPrompts(background, mcp.ListPromptsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, prompt := range listed.Prompts {
		names = append(names, prompt.Name)
	}
	request := mcp.GetPromptRequest{}
	request.Params.Name = "recommend"
	request.Params.Arguments = map[string]string{"city": "Rome"}
	got, err := s.client.GetPrompt(background, request)
	if err != nil {
		return nil, err
	}
	content, err := plain(got.Messages[0].Content)
	return map[string]any{"names": names, "text": content["text"]}, err
}

func (s *session) completion() (any, error) {
	request := mcp.CompleteRequest{}
	request.Params.Ref = mcp.PromptReference{Type: "ref/prompt", Name: "recommend"}
	request.Params.Argument = mcp.CompleteArgument{Name: "city", Value: "O"}
	got, err := s.client.Complete(background, request)
	if err != nil {
		return nil, err
	}
	return got.Completion.Values, nil
}

// hear waits for the next notification of a method, and returns its parameters.
func (s *session) hear(method string) (map[string]any, error) {
	late := time.After(10 * time.Second)
	for {
		select {
		case notification := <-s.heard:
			if notification.Method == method {
				return notification.Params.AdditionalFields, nil
			}
		case <-late:
			return nil, errors.New("no " + method + " after 10 s")
		}
	}
}

func plain(value any) (map[string]any, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	err = json.Unmarshal(encoded, &fields)
	return fields, err
}
