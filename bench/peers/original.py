#!/usr/bin/env python3
"""PicoLM beside the original C program on the same GGUF file, in turns A B A B.

    bench/peers/original.py --original PATH/picolm --model MODEL.gguf [--picolm ./picolm]

Build the original with its own `make native`. Both print "Prefill:" and "Generation:" lines on
standard error; rates are recomputed from tokens and seconds. The original's generation line counts
one more token than forward passes. Prints every run, then medians and ratios. Not a test: a
machine with a noisy neighbour gives noisy figures.
"""
import argparse
import re
import statistics
import subprocess
import sys

WORDS = ("the small house stood near the river and every morning the old man walked down to the "
         "water to look for his boat while the children played with the dog in the garden ")


def run(program, model, prompt, n, threads):
    command = [program, model, "-p", prompt, "-n", str(n), "-t", "0", "-j", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stderr}")
    figures = {}
    for key in ("Prefill", "Generation"):
        match = re.search(rf"{key}: (\d+) tokens in ([\d.]+)s", done.stderr)
        rate = re.search(rf"{key}: .*\(([\d.]+) tok/s\)", done.stderr)
        if not match or not rate:
            sys.exit(f"{program} printed no {key} line:\n{done.stderr}")
        figures[key] = (int(match[1]), float(rate[1]))
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--original", required=True)
    parser.add_argument("--picolm", default="./picolm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--words", type=int, default=100, help="words of the prompt")
    parser.add_argument("--generate", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    prompt = " ".join((WORDS * (a.words // 30 + 1)).split()[:a.words])
    rates = {"ours": {"Prefill": [], "Generation": []}, "original": {"Prefill": [], "Generation": []}}
    for _ in range(a.rounds):
        for name, program in (("ours", a.picolm), ("original", a.original)):
            figures = run(program, a.model, prompt, a.generate, a.threads)
            for key, (count, rate) in figures.items():
                rates[name][key].append(rate)
                print(f"{name:9} {key:11} {count:5} tokens {rate:9.2f} tok/s", flush=True)
    for key in ("Prefill", "Generation"):
        ours = statistics.median(rates["ours"][key])
        theirs = statistics.median(rates["original"][key])
        print(f"{key}: {ours:.1f} against {theirs:.2f} tok/s, ratio {ours / theirs:.1f}")


if __name__ == "__main__":
    main()
