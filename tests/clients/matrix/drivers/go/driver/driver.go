// Package driver has what the drivers of clients in Go have in common. Their arguments and their output are those of
// ../../python/driver.py.
package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

const seconds = 30

// Result is what a tool call gave.
type Result struct {
	Text       string
	IsError    bool
	Structured any
	Types      []string
}

// Client is what every client can do.
type Client interface {
	ListTools() ([]string, error)
	CallTool(name string, arguments map[string]any) (Result, error)
	Close() error
}

// Target says where the server is.
type Target struct {
	Transport string
	URL       string
	Command   []string
	Revision  string
}

// Feature returns what the client saw.
type Feature func() (any, error)

// Driver connects a client, and returns it with the features that not all clients have.
type Driver func(target Target) (Client, map[string]Feature, error)

// Main runs the features that the program's arguments name, and prints what became of each one.
func Main(driver Driver) {
	target := Target{Transport: os.Args[1], URL: os.Args[2], Revision: os.Args[3]}
	if target.Transport == "stdio" {
		if err := json.Unmarshal([]byte(target.URL), &target.Command); err != nil {
			panic(err)
		}
	}
	names := os.Args[4:]
	client, features, err := driver(target)
	if err != nil {
		// The runner reports all features as failed.
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for name, feature := range common(client) {
		if features[name] == nil {
			features[name] = feature
		}
	}
	for _, name := range names {
		if name != "reconnect" {
			report(name, features[name])
		}
	}
	if err := client.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
	}
	if slices.Contains(names, "reconnect") {
		report("reconnect", func() (any, error) { return reconnect(driver, target) })
	}
}

func report(name string, feature Feature) {
	line := map[string]any{"feature": name}
	if feature == nil {
		line["unsupported"] = "has no such feature"
	} else if saw, err := inTime(feature); err != nil {
		line["error"] = err.Error()
	} else {
		line["saw"] = saw
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(encoded))
}

func inTime(feature Feature) (any, error) {
	type outcome struct {
		saw any
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		saw, err := feature()
		done <- outcome{saw, err}
	}()
	select {
	case got := <-done:
		return got.saw, got.err
	case <-time.After(seconds * time.Second):
		return nil, fmt.Errorf("not done after %d s", seconds)
	}
}

func common(client Client) map[string]Feature {
	text := func(name string, arguments map[string]any) Feature {
		return func() (any, error) {
			result, err := client.CallTool(name, arguments)
			return result.Text, err
		}
	}
	tools := func() (any, error) {
		names, err := client.ListTools()
		slices.Sort(names)
		return names, err
	}
	stops := []any{map[string]any{"name": "Bergen", "nights": 2}}
	trip := map[string]any{"city": "Oslo", "stops": stops}
	return map[string]Feature{
		"tools":            tools,
		"pagination":       tools,
		"call":             text("greet", map[string]any{"name": "Zoë 🎉"}),
		"no_arguments":     text("revision", nil),
		"nested_arguments": text("plan", map[string]any{"trip": trip, "tags": []string{"by train", "cheap"}}),
		"parallel_calls":   func() (any, error) { return parallelCalls(client) },
		"structured_results": func() (any, error) {
			result, err := client.CallTool("measure", map[string]any{"city": "Oslo"})
			return result.Structured, err
		},
		"content_types": func() (any, error) {
			result, err := client.CallTool("show", nil)
			return result.Types, err
		},
		"tool_errors": func() (any, error) {
			result, err := client.CallTool("fail", nil)
			if err == nil && !result.IsError {
				err = errors.New("no error: " + result.Text)
			}
			return result.Text, err
		},
		"bad_arguments": func() (any, error) {
			result, err := client.CallTool("greet", nil)
			return result.IsError, err
		},
		"elicitation": text("ask_user", nil),
		"sampling":    text("ask_model", nil),
		"roots":       text("ask_roots", nil),
		"resumption":  text("drop", nil),
	}
}

func parallelCalls(client Client) (any, error) {
	texts, failures := make([]string, 10), make([]error, 10)
	var calls sync.WaitGroup
	for n := range texts {
		calls.Go(func() {
			result, err := client.CallTool("greet", map[string]any{"name": strconv.Itoa(n)})
			texts[n], failures[n] = result.Text, err
		})
	}
	calls.Wait()
	return texts, errors.Join(failures...)
}

func reconnect(driver Driver, target Target) (any, error) {
	var texts []string
	for _, name := range []string{"first", "second"} {
		client, _, err := driver(target)
		if err != nil {
			return nil, err
		}
		result, err := client.CallTool("greet", map[string]any{"name": name})
		if err != nil {
			return nil, err
		}
		texts = append(texts, result.Text)
		if err := client.Close(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}
