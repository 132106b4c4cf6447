// The official Go SDK: `server stdio` or `server http|stateless|stream PORT`.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const newest = "2026-07-28"

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

type words struct {
	Text string `json:"text"`
}

type steps struct {
	N int `json:"n"`
}

type sum struct {
	Result int `json:"result"`
}

type person struct {
	ID     int      `json:"id"`
	Name   string   `json:"name"`
	Email  string   `json:"email"`
	Active bool     `json:"active"`
	Tags   []string `json:"tags"`
}

type people struct {
	Result []person `json:"result"`
}

type address struct {
	Street   string `json:"street"`
	Postcode string `json:"postcode"`
}

type customer struct {
	Name    string  `json:"name"`
	Address address `json:"address"`
}

type item struct {
	SKU      string  `json:"sku"`
	Quantity int     `json:"quantity"`
	Price    float64 `json:"price"`
}

type purchase struct {
	Customer customer `json:"customer"`
	Items    []item   `json:"items"`
	Shipping string   `json:"shipping"`
}

// The SDK infers types, but no constraints, so the schema is written by hand and checked by the SDK.
const orderSchema = `{
	"type": "object",
	"properties": {
		"customer": {
			"type": "object",
			"properties": {
				"name": {"type": "string", "minLength": 1, "maxLength": 100},
				"address": {
					"type": "object",
					"properties": {
						"street": {"type": "string", "minLength": 1, "maxLength": 100},
						"postcode": {"type": "string", "pattern": "^[0-9]{5}$"}
					},
					"required": ["street", "postcode"]
				}
			},
			"required": ["name", "address"]
		},
		"items": {
			"type": "array",
			"minItems": 1,
			"maxItems": 20,
			"items": {
				"type": "object",
				"properties": {
					"sku": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
					"quantity": {"type": "integer", "minimum": 1, "maximum": 100},
					"price": {"type": "number", "minimum": 0}
				},
				"required": ["sku", "quantity", "price"]
			}
		},
		"shipping": {"enum": ["normal", "express"]}
	},
	"required": ["customer", "items", "shipping"],
	"additionalProperties": false
}`

const routeSchema = `{
	"type": "object",
	"properties": {
		"from": {"type": "string", "minLength": 1, "maxLength": 100},
		"to": {"type": "string", "minLength": 1, "maxLength": 100},
		"mode": {"enum": ["walk", "ride"]},
		"stops": {"type": "array", "items": {"type": "string"}, "maxItems": 10}
	},
	"required": ["from", "to", "mode"],
	"additionalProperties": false
}`

func makePerson(id int) person {
	name := fmt.Sprintf("user %d", id)
	return person{ID: id, Name: name, Email: "user@example.com", Active: true, Tags: []string{"a"}}
}

func text(value string) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}, nil, nil
}

// add serves add and block: the SDK runs every call in a goroutine, where it may block.
func add(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, any, error) {
	return text(strconv.Itoa(in.A + in.B))
}

func wait(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, any, error) {
	runtime.Gosched()
	return text(strconv.Itoa(in.A + in.B))
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
	return text(in.Text)
}

func progress(ctx context.Context, request *mcp.CallToolRequest, in steps) (*mcp.CallToolResult, any, error) {
	if token := request.Params.GetProgressToken(); token != nil {
		for step := 1; step <= in.N; step++ {
			told := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(step), Total: float64(in.N)}
			_ = request.Session.NotifyProgress(ctx, told) // fails where there is no stream for it
		}
	}
	return text(strconv.Itoa(in.N))
}

func total(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, sum, error) {
	return nil, sum{in.A + in.B}, nil
}

func user(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, person, error) {
	return nil, makePerson(in.A), nil
}

func users(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, people, error) {
	all := make([]person, 0, 100)
	for id := in.A; id < in.A+100; id++ {
		all = append(all, makePerson(id))
	}
	return nil, people{all}, nil
}

func order(_ context.Context, _ *mcp.CallToolRequest, in purchase) (*mcp.CallToolResult, any, error) {
	count := 0
	for _, one := range in.Items {
		count += one.Quantity
	}
	return text(strconv.Itoa(count))
}

func route(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
	return text(fmt.Sprintf("%v from %v to %v", in["mode"], in["from"], in["to"]))
}

func addTools(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two numbers."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "wait", Description: "Add two numbers after a turn of the loop."}, wait)
	mcp.AddTool(server, &mcp.Tool{Name: "block", Description: "Add two numbers in a thread."}, add)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Give the text back."}, echo)
	mcp.AddTool(server, &mcp.Tool{Name: "progress", Description: "Tell of n steps, then answer."}, progress)
	mcp.AddTool(server, &mcp.Tool{Name: "total", Description: "Add two numbers, as a structured result."}, total)
	mcp.AddTool(server, &mcp.Tool{Name: "user", Description: "Return an object."}, user)
	mcp.AddTool(server, &mcp.Tool{Name: "users", Description: "Return a list of objects."}, users)
	mcp.AddTool(server, &mcp.Tool{
		Name: "order", Description: "Count what is ordered.", InputSchema: json.RawMessage(orderSchema),
	}, order)
	mcp.AddTool(server, &mcp.Tool{
		Name: "route", Description: "Describe a route.", InputSchema: json.RawMessage(routeSchema),
	}, route)

	var grown atomic.Int64
	grow := func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		name := fmt.Sprintf("grown_%d", grown.Add(1))
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Add two numbers."}, add)
		return text(name)
	}
	what := "Add a tool, so that those who listen hear that the list has changed."
	mcp.AddTool(server, &mcp.Tool{Name: "grow", Description: what}, grow)

	more, _ := strconv.Atoi(os.Getenv("BENCH_TOOLS"))
	for number := range more {
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("tool_%d", number), Description: "Add two numbers."}, add)
	}
}

// serveHTTP has two of the SDK's handlers: one serves sessions, only the other the newest revision.
func serveHTTP(server *mcp.Server, mode, port string) error {
	get := func(*http.Request) *mcp.Server { return server }
	options := mcp.StreamableHTTPOptions{JSONResponse: mode != "stream"}
	sessions := mcp.NewStreamableHTTPHandler(get, &options)
	options.Stateless = true
	stateless := mcp.NewStreamableHTTPHandler(get, &options)
	route := func(w http.ResponseWriter, r *http.Request) {
		if mode == "stateless" || r.Header.Get("Mcp-Protocol-Version") == newest {
			stateless.ServeHTTP(w, r)
		} else {
			sessions.ServeHTTP(w, r)
		}
	}
	return http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(route))
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ServerOptions{PageSize: 1_000_000})
	addTools(server)
	if os.Args[1] == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	log.Fatal(serveHTTP(server, os.Args[1], os.Args[2]))
}
