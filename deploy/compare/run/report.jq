# The tables of run.sh, as Markdown, from results.jsonl: what the machine is, then a line for each measurement.

def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor]
    else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def fixed($digits): if isnan then "–" else
    pow(10; $digits) as $scale | (. * $scale | round) as $whole |
    if $digits == 0 then "\($whole)"
    else ($whole / $scale | floor) as $integer | ("\($whole - $integer * $scale | round)") as $rest |
        "\($integer).\("0" * ($digits - ($rest | length)) // "")\($rest)" end end;
def grouped: tostring | [while(length > 0; .[:-3]) | .[-3:]] | reverse | join(",");
# A median, and the spread where there is one.
def spread($digits):
    (median | fixed($digits)) as $middle | if length < 2 or $middle == "–" then $middle
    else "\($middle) (\(min | fixed($digits))–\(max | fixed($digits)))" end;
def times: if . == null or . == infinite or isnan then "–" else "×\(fixed(2))" end;
def row: "| " + (map(gsub("\\|"; "/")) | join(" | ")) + " |";
def table($head): ($head | row), ($head | map("---") | row);

# CPU seconds for a million delivered points, the drain of the queue included.
def cost: if .account.delivered == 0 then nan
    else .cpu_nanos / 1e9 / (.load.accepted_items * .account.delivered / .account.sent) * 1e6 end;
def not_accepted: .load.refused_items + .load.rejected_items + .load.unanswered_items + .load.unsent_items;
def exact: .account | .sent > 0 and .delivered == .sent and .lost + .duplicated + (.unknown // 0) + (.unmarked // 0) == 0;
def delivered:
    if all(.[]; exact) then if all(.[]; .account.by_id) then "all, once" else "all (counted)" end
    elif all(.[]; .account.sent == 0) then "nothing was accepted"
    else (map(.account.delivered) | add) as $delivered | (map(.account.sent) | add) as $sent |
        "\(100 * $delivered / ([$sent, 1] | max) | fixed(3))%, lost \(map(.account.lost) | add | grouped), twice \(
            map(.account.duplicated) | add | grouped)" end;
def remarks:
    [if .[0].gateway == "vmagent" then "unequal work: remote write out" else empty end,
     if .[0].granted < .[0].cpus then "with \(.[0].granted) of \(.[0].cpus) CPUs" else empty end] | join("; ");
def step_name: "\(.rate | grouped) points/s, \(.cpus) CPU\(if .cpus == 1 then "" else "s" end), \(.memory)";
# In the order in which they came first.
def in_order(f): [foreach .[] as $item ({seen: []}; ($item | f) as $key |
    if .seen | index([$key]) then .new = null else .seen += [$key] | .new = [$key] end; .new | values | .[])];

(map(select(.machine)) | .[0].machine) as $machine |
map(select(.gateway)) as $rows |
($rows | in_order(.rate)) as $rates |
($rows | in_order(.gateway)) as $gateways |
def of($gateway; $rate): $rows | map(select(.gateway == $gateway and .rate == $rate));
def good: map(select(.problem == null));
# The medians of a gateway at a step, or null.
def medians($gateway; $rate): of($gateway; $rate) | good | if length == 0 then null else
    {cpu: map(.usage.cpu_avg) | median, memory: map(.usage.memory_avg) | median, cost: map(cost) | median} end;

"\($machine.date), \($machine.cpu), \($machine.cpus) CPUs, \($machine.kernel); load before: \($machine.load). "
+ "\($machine.limits). \($machine.warmup) s warm-up, \($machine.duration) s measured, \($machine.repeats) repeats, interleaved; "
+ "median (range). Requests of \($machine.points) points over \($machine.connections) connections, "
+ "\($machine.series | grouped) series, uncompressed; delivered to \(
    if $machine.backend == "sink" then "a sink that accounts for every point by id" else "VictoriaMetrics, which counts them" end).",
"",
table(["step", "gateway", "CPU avg, % of a core", "CPU max", "memory avg, MiB", "memory max", "points/s reached", "not accepted",
    "delivered of accepted", "CPU-s per million", "latency p50 / p99, ms", "remark"]),
($rates[] as $rate | $gateways[] as $gateway | of($gateway; $rate) | select(length > 0) | . as $all | good |
    if length == 0 then
        [($all[0] | step_name), $gateway, "–", "–", "–", "–", "–", "–", "–", "–", "–", $all[0].problem] | row
    else
        [(.[0] | step_name), $gateway,
         (map(.usage.cpu_avg) | spread(1)), (map(.usage.cpu_max) | max | fixed(1)),
         (map(.usage.memory_avg) | spread(1)), (map(.usage.memory_max) | max | fixed(1)),
         (map(.load.sent_items / ([.load.seconds, ($machine.duration | tonumber)] | max)) | median | round | grouped),
         (map(not_accepted) | add | grouped),
         delivered,
         (map(cost) | spread(2)),
         "\(map(.load.latency_us.p50 / 1000) | median | fixed(1)) / \(map(.load.latency_us.p99 / 1000) | median | fixed(1))",
         ([remarks, ($all | map(.problem | values) | .[])] | map(select(. != "")) | join("; "))] | row
    end),
(if ($rates | length) > 1 then
    "", "Scaling from step to step: by how much CPU and memory grow, and the cost of a point.", "",
    table(["from → to", "load", "gateway", "CPU", "memory", "CPU per point"]),
    (range(1; $rates | length) as $i | $rates[$i - 1] as $from | $rates[$i] as $to | $gateways[] as $gateway |
        medians($gateway; $from) as $a | medians($gateway; $to) as $b |
        ["\($from | grouped) → \($to | grouped)", ($to / $from | times), $gateway] +
        (if $a == null or $b == null then ["–", "–", "–"]
         else [($b.cpu / $a.cpu | times), ($b.memory / $a.memory | times), ($b.cost / $a.cost | times)] end) | row)
else empty end)
