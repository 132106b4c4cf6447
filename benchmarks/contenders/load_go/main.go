// A load over standard input and output: `load WINDOW INITIALIZE REQUEST COMMAND...`.
//
// It starts a server, and keeps WINDOW requests in flight for as many seconds as each line of
// its standard input says. INITIALIZE is a whole message. REQUEST is a message without its id and its closing
// brace. After each load it prints its figures as JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// figures are those of one load: times in seconds, `took` in cores.
type figures struct {
	PID    int     `json:"pid"`
	Calls  int     `json:"calls"`
	Rate   float64 `json:"rate"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Errors int     `json:"errors"`
	Took   float64 `json:"took"`
}

// server is a process, and what a load knows of its requests.
type server struct {
	pid    int
	input  io.Writer
	output *bufio.Reader
	start  string
	nextID int
}

// reply is a line of the server, as far as a load looks at it. It is not a reply without an id.
type reply struct {
	id     int
	failed bool
}

// readReply scans the keys of the outermost object. Decoding the whole line would take longer.
func readReply(line []byte) reply {
	found := reply{id: -1, failed: bytes.Contains(line, []byte(`"isError":true`))}
	depth := 0
	for at := 0; at < len(line); at++ {
		switch line[at] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := endOfString(line, at)
			if depth == 1 && end+1 < len(line) && line[end+1] == ':' {
				switch string(line[at+1 : end]) {
				case "id":
					found.id = number(line[end+2:])
				case "error":
					found.failed = true
				case "method":
					return reply{id: -1}
				}
			}
			at = end
		}
	}
	return found
}

// endOfString returns where the string ends that begins at a quotation mark.
func endOfString(line []byte, at int) int {
	for at++; at < len(line) && line[at] != '"'; at++ {
		if line[at] == '\\' {
			at++
		}
	}
	return at
}

// number returns the digits at the beginning of a text as a number.
func number(text []byte) int {
	value := 0
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			break
		}
		value = value*10 + int(digit-'0')
	}
	return value
}

// open starts a server and begins the conversation.
func open(initialize, start string, command []string) (*server, error) {
	process := exec.Command(command[0], command[1:]...)
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	opened := &server{
		pid:    process.Process.Pid,
		input:  input,
		output: bufio.NewReaderSize(output, 1<<18),
		start:  start,
	}
	if _, err := io.WriteString(input, initialize+"\n"); err != nil {
		return nil, err
	}
	if _, err := opened.output.ReadBytes('\n'); err != nil {
		return nil, fmt.Errorf("no reply to initialize: %w", err)
	}
	_, err = io.WriteString(input, initialized+"\n")
	return opened, err
}

// load keeps a number of requests in flight until the time is up.
func (s *server) load(window int, duration time.Duration) (figures, error) {
	first := s.nextID
	sent := make([]time.Time, 0, 1<<20)
	latencies := make([]time.Duration, 0, 1<<20)
	failed := 0
	cpuBefore := cpuTime()
	started := time.Now()
	written := make(chan error, 1)
	room := window
	inFlight := 0

	// A goroutine writes, because a server that does not read must not keep this one from reading.
	blocks := make(chan []byte, 2*window)
	go func() {
		for block := range blocks {
			if _, err := s.input.Write(block); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for {
		now := time.Now()
		if now.Sub(started) < duration && room > 0 {
			pending := make([]byte, 0, room*(len(s.start)+16))
			for ; room > 0; room-- {
				pending = append(pending, s.start...)
				pending = append(pending, `,"id":`...)
				pending = strconv.AppendInt(pending, int64(s.nextID), 10)
				pending = append(pending, '}', '\n')
				sent = append(sent, now)
				s.nextID++
				inFlight++
			}
			blocks <- pending
		}
		if inFlight == 0 {
			break
		}
		// All lines that have arrived are taken before more requests are sent.
		for isFirst := true; isFirst || s.output.Buffered() > 0; isFirst = false {
			line, err := s.output.ReadSlice('\n')
			if err != nil {
				return figures{}, fmt.Errorf("the server ended: %w", err)
			}
			got := readReply(line)
			if got.id < first || got.id >= s.nextID {
				continue
			}
			latencies = append(latencies, time.Since(sent[got.id-first]))
			if got.failed {
				failed++
			}
			inFlight--
			room++
		}
	}
	close(blocks)
	if err := <-written; err != nil {
		return figures{}, err
	}
	seconds := time.Since(started).Seconds()
	slices.Sort(latencies)
	last := float64(len(latencies) - 1)
	return figures{
		PID:    s.pid,
		Calls:  len(latencies),
		Rate:   float64(len(latencies)-failed) / seconds,
		P50:    latencies[int(last*0.5)].Seconds(),
		P99:    latencies[int(last*0.99)].Seconds(),
		Errors: failed,
		Took:   (cpuTime() - cpuBefore).Seconds() / seconds,
	}, nil
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	runtime.GOMAXPROCS(1)
	window, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	opened, err := open(os.Args[2], os.Args[3], os.Args[4:])
	if err != nil {
		log.Fatal(err)
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		duration, err := time.ParseDuration(commands.Text() + "s")
		if err != nil {
			log.Fatal(err)
		}
		found, err := opened.load(window, duration)
		if err != nil {
			log.Fatal(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}
