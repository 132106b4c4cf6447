// The official Go SDK.
package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"drivers/driver"
)

const stateless = "2026-07-28"

var background = context.Background()

func main() {
	driver.Main(connect)
}

// client is a session, and what the server has sent to it.
type client struct {
	session  *mcp.ClientSession
	target   driver.Target
	progress chan []any
	logged   chan []any
	updated  chan bool
	changed  chan bool
}

func connect(target driver.Target) (driver.Client, map[string]driver.Feature, error) {
	c := &client{
		target:   target,
		progress: make(chan []any, 10),
		logged:   make(chan []any, 10),
		updated:  make(chan bool, 10),
		changed:  make(chan bool, 10),
	}
	implementation := &mcp.Implementation{Name: "go-sdk", Version: "1.0.0"}
	sdk := mcp.NewClient(implementation, c.handlers())
	sdk.AddRoots(&mcp.Root{URI: "file:///work"})
	options := &mcp.ClientSessionOptions{ProtocolVersion: target.Revision}
	session, err := sdk.Connect(background, transport(target), options)
	if err != nil {
		return nil, nil, err
	}
	c.session = session
	return c, c.features(), nil
}

func transport(target driver.Target) mcp.Transport {
	switch target.Transport {
	case "http":
		return &mcp.StreamableClientTransport{Endpoint: target.URL}
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: target.URL}
	}
	return &mcp.CommandTransport{Command: exec.Command(target.Command[0], target.Command[1:]...)}
}

func (c *client) handlers() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			content := map[string]any{"city": "Rome", "days": 3}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			content := &mcp.TextContent{Text: "Oslo"}
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: content}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
			step := request.Params
			c.progress <- []any{step.Progress, step.Total, step.Message}
		},
		LoggingMessageHandler: func(_ context.Context, request *mcp.LoggingMessageRequest) {
			c.logged <- []any{request.Params.Level, request.Params.Data}
		},
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) {
			c.updated <- true
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.changed <- true
		},
	}
}

func (c *client) Close() error {
	return c.session.Close()
}

func (c *client) ListTools() ([]string, error) {
	return names(c.session.Tools(background, nil), func(tool *mcp.Tool) string { return tool.Name })
}

func (c *client) CallTool(name string, arguments map[string]any) (driver.Result, error) {
	return c.call(background, &mcp.CallToolParams{Name: name, Arguments: arguments})
}

func (c *client) call(ctx context.Context, params *mcp.CallToolParams) (driver.Result, error) {
	got, err := c.session.CallTool(ctx, params)
	if err != nil {
		return driver.Result{}, err
	}
	result := driver.Result{IsError: got.IsError, Structured: got.StructuredContent}
	for _, content := range got.Content {
		switch content := content.(type) {
		case *mcp.TextContent:
			result.Text += content.Text
			result.Types = append(result.Types, "text")
		case *mcp.ImageContent:
			result.Types = append(result.Types, "image")
		case *mcp.AudioContent:
			result.Types = append(result.Types, "audio")
		case *mcp.ResourceLink:
			result.Types = append(result.Types, "resource_link")
		case *mcp.EmbeddedResource:
			result.Types = append(result.Types, "resource")
		}
	}
	return result, nil
}

func (c *client) features() map[string]driver.Feature {
	return map[string]driver.Feature{
		"unknown_tool":  c.unknownTool,
		"progress":      c.reportProgress,
		"logging":       c.logging,
		"cancellation":  c.cancellation,
		"resources":     c.resources,
		"templates":     c.templates,
		"subscriptions": c.subscriptions,
		"prompts":       c.prompts,
		"completion":    c.completion,
		"list_changes":  c.listChanges,
		"ping": func() (any, error) {
			return "pong", c.session.Ping(background, nil)
		},
	}
}

func (c *client) unknownTool() (any, error) {
	_, err := c.CallTool("no_such_tool", nil)
	var failure *jsonrpc.Error
	if errors.As(err, &failure) {
		return failure.Code, nil
	}
	return nil, fmt.Errorf("expected an error with a code, got %w", err)
}

func (c *client) reportProgress() (any, error) {
	params := &mcp.CallToolParams{Name: "count", Arguments: map[string]any{"steps": 3}}
	params.SetProgressToken("counting")
	if _, err := c.call(background, params); err != nil {
		return nil, err
	}
	return [][]any{<-c.progress, <-c.progress, <-c.progress}, nil
}

func (c *client) logging() (any, error) {
	params := &mcp.CallToolParams{Name: "talk"}
	if c.target.Revision == stateless {
		params.Meta = mcp.Meta{"io.modelcontextprotocol/logLevel": "info"}
	} else if err := c.session.SetLoggingLevel(background, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		return nil, err
	}
	if _, err := c.call(background, params); err != nil {
		return nil, err
	}
	return [][]any{<-c.logged}, nil
}

func (c *client) cancellation() (any, error) {
	ctx, cancel := context.WithCancel(background)
	params := &mcp.CallToolParams{Name: "wait_for_ever"}
	params.SetProgressToken("waiting")
	go func() {
		<-c.progress
		cancel()
	}()
	if _, err := c.call(ctx, params); err == nil {
		return nil, errors.New("the call was answered")
	}
	result, err := c.CallTool("was_cancelled", nil)
	return result.Text, err
}

func (c *client) resources() (any, error) {
	uris, err := names(c.session.Resources(background, nil), func(resource *mcp.Resource) string { return resource.URI })
	if err != nil {
		return nil, err
	}
	slices.Sort(uris)
	text, err := c.read("note://today")
	if err != nil {
		return nil, err
	}
	picture, err := c.read("note://picture")
	if err != nil {
		return nil, err
	}
	blob := base64.StdEncoding.EncodeToString(picture.Blob)
	return map[string]any{"uris": uris, "text": text.Text, "blob": blob[:6]}, nil
}

func (c *client) templates() (any, error) {
	uri := func(template *mcp.ResourceTemplate) string { return template.URITemplate }
	templates, err := names(c.session.ResourceTemplates(background, nil), uri)
	if err != nil {
		return nil, err
	}
	text, err := c.read("note://by-day/Monday")
	if err != nil {
		return nil, err
	}
	return map[string]any{"templates": templates, "text": text.Text}, nil
}

func (c *client) read(uri string) (*mcp.ResourceContents, error) {
	result, err := c.session.ReadResource(background, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return nil, err
	}
	return result.Contents[0], nil
}

func (c *client) subscriptions() (any, error) {
	params := &mcp.SubscribeParams{URI: "note://today"}
	if err := c.session.Subscribe(background, params); err != nil {
		return nil, err
	}
	if _, err := c.CallTool("change_note", nil); err != nil {
		return nil, err
	}
	return "notified", await(c.updated)
}

func (c *client) prompts() (any, error) {
	listed, err := names(c.session.Prompts(background, nil), func(prompt *mcp.Prompt) string { return prompt.Name })
	if err != nil {
		return nil, err
	}
	arguments := map[string]string{"city": "Rome"}
	got, err := c.session.GetPrompt(background, &mcp.GetPromptParams{Name: "recommend", Arguments: arguments})
	if err != nil {
		return nil, err
	}
	text := got.Messages[0].Content.(*mcp.TextContent).Text
	return map[string]any{"names": listed, "text": text}, nil
}

func (c *client) completion() (any, error) {
	got, err := c.session.Complete(background, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "recommend"},
		Argument: mcp.CompleteParamsArgument{Name: "city", Value: "O"},
	})
	if err != nil {
		return nil, err
	}
	return got.Completion.Values, nil
}

func (c *client) listChanges() (any, error) {
	if _, err := c.CallTool("add_tool", nil); err != nil {
		return nil, err
	}
	if err := await(c.changed); err != nil {
		return nil, err
	}
	tools, err := c.ListTools()
	return slices.Contains(tools, "added"), err
}

func await(heard chan bool) error {
	select {
	case <-heard:
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("no notification after 10 s")
	}
}

// names returns the names of the items on all pages.
func names[Item any](items iter.Seq2[Item, error], name func(Item) string) ([]string, error) {
	var found []string
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		found = append(found, name(item))
	}
	return found, nil
}
