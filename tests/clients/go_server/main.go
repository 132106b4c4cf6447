package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type greeting struct {
	Name string `json:"name"`
}

func main() {
	address := flag.String("http", "", "address")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "Say hello"},
		func(ctx context.Context, request *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
			text := fmt.Sprintf("Hello %s, it is %s", in.Name, time.Now().UTC().Format(time.RFC3339Nano))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	if *address == "" {
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Fatal(http.ListenAndServe(*address, handler))
}
