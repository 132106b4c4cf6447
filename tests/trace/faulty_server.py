"""A server on standard input and output, with the fault that its argument names."""

import json
import sys
import time

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def send(message):
    print(json.dumps(message), flush=True)


def answer(id, result):
    send({"jsonrpc": "2.0", "id": id, "result": result})


def log(text):
    params = {"level": "info", "data": text}
    send({"jsonrpc": "2.0", "method": "notifications/message", "params": params})


def progress(token, done):
    params = {"progressToken": token, "progress": done}
    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def call(id, token):
    result = {
        "content": [{"type": "text", "text": "milk"}, {"type": "text", "text": "tea"}],
        "structuredContent": {"count": 2, "made": "2026-01-31", "tags": ["a", "b"]},
        "isError": False,
    }
    structured = result["structuredContent"]
    if FAULT == "a changed value":
        structured["count"] = 3
    elif FAULT == "a missing field":
        del structured["count"]
    elif FAULT == "an extra field":
        structured["size"] = 1
    elif FAULT == "another type":
        structured["count"] = "2"
    elif FAULT == "another item":
        structured["tags"].append("c")
    elif FAULT == "items in another order":
        result["content"].reverse()
    elif FAULT == "no date":
        structured["made"] = "today"
    elif FAULT == "an answer without its tail":
        result["content"][1]["text"] = "te"
    if FAULT == "a request of its own":
        send({"jsonrpc": "2.0", "id": 99, "method": "ping"})
    if FAULT == "a line that is not JSON":
        print("Traceback!", flush=True)
    if FAULT == "a blank line":
        print(flush=True)
    if FAULT != "a missing notification":
        progress(token, 1)
    if FAULT == "progress twice":
        progress(token, 1)
    if FAULT == "an answer too early":
        answer(id, result)
        log("done")
        return
    log("done")
    if FAULT == "no answer":
        return
    if FAULT == "an early end":
        sys.exit(3)
    if FAULT == "an error in its place":
        error = {"code": -32603, "message": "no"}
        send({"jsonrpc": "2.0", "id": id, "error": error})
        return
    answer("wrong" if FAULT == "another id" else id, result)
    if FAULT == "the answer twice":
        answer(id, result)


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if message["method"] == "tools/call":
            call(message["id"], message["params"]["_meta"]["progressToken"])
        elif message["method"] == "tools/list":
            code = -32000 if FAULT == "another error code" else -32601
            error = {"code": code, "message": "no"}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            if FAULT == "a late message":
                time.sleep(0.2)
                log("late")


main()
