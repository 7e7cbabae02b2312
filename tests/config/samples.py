"""Whole configurations that several tests read."""

from __future__ import annotations

HEAD = "version: 1\nnode: {name: n, domain: d}\nlisteners: [{url: 'mqtt://127.0.0.1'}]\n"

# interfaces.md, "Configuration", without what this version does not support yet
WHOLE = """\
version: 1
node: {name: mygym, domain: mygymbrand, data: var/mygym, timezone: Europe/Rome}

listeners:
  - {url: "mqtt://127.0.0.1:1883", scope: gym, anonymous: true, max_connections: 10000}
  - {url: "mqtts://0.0.0.0:8883", scope: gym, cert: gym.pem, key: gym.key, client_ca: ca.pem, client_cert: optional}
  - {url: "ws://127.0.0.1:8083/mqtt", scope: gym, environment: {location: rome}}

scopes:
  gym: {parents: [brand]}
  brand: {}
  analyzer: {}

links:
  - from: gym
    to: analyzer
    share:
      - {topic: "+/performance/+/speed", direction: out, qos: 1, remote_prefix: "MyGym/"}

levels: {implied: false, order: [plain, tls, mtls, trusted]}
trust: {by: subject, accept: ["CN=remotegym"], ask_neighbours: false, otherwise: degrade}
brokering:
  preset: component
  assign: [{link: "gym->analyzer", type: up}]
  interface: {scope: gym, parent: brand, export: ["+/performance/#"], import: []}
classify: [{topic: "+/performance/+/heartbeats", category: sensitive}]
environment: {location: milan, purpose: training}
directory:
  users:
    mary: {password: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g", roles: [frequenter],
           attributes: {enrolled: [ts1]}}
    alice: {password: "plain:wonder", roles: [coach], attributes: {shift: "08:00-14:00"}}
  clients: {treadmill-1: {user: mary, attributes: {machine: treadmill}}}
policies:
  - {id: p1, subject: "role:frequenter", topic: "+/performance/ts1/+", action: [read, write],
     when: "'ts1' in s.enrolled"}
  - {id: p2, subject: "role:coach", topic: "+/performance/#", action: read, when: "within(e.now, s.shift)"}
preferences:
  - {id: up1, user: mary, topic: "+/performance/ts1/+", when: "s.role == 'coach' && s.user == 'alice'"}
  - {id: up2, user: mary, topic: "+/performance/ts1/+", to: analyzer, when: "false"}
views:
  - {topic: "angina", for: "group:cardiologists", keep: ["/illness", "/therapy"]}
flows: {forbid: ["scope:brand -> scope:analyzer"], require: ["client:treadmill-1 -> scope:brand"]}
tests:
  - {as: "user:bob", action: read, topic: tr1/performance/ts1/speed, from: "user:mary", expect: deny, by: up1}
record: traffic
"""

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"
FULL = f"""\
version: 1
node: {{name: mygym, domain: mygymbrand, data: var/mygym, timezone: Europe/Rome}}
listeners:
  - {{url: "mqtt://127.0.0.1:1883", scope: gym, anonymous: true, max_connections: 10000, connect_rate: 50}}
  - url: mqtts://0.0.0.0:8883
    scope: gym
    cert: gym.pem
    key: /etc/gym.key
    client_ca: ca.pem
    client_cert: optional
    tls_min: 1.3
    publish_rate: 2.5
    publish_burst: 40
    max_packet: 64KiB
    connect_timeout: 500ms
  - {{url: "ws://127.0.0.1:8083/mqtt", scope: gym, origins: ["https://Example.org"]}}
scopes: {{gym: {{}}}}
directory:
  users:
    mary:
      password: "{HASH}"
      roles: [frequenter]
      groups: [g]
      attributes: {{enrolled: [ts1], shift: "08:00-14:00"}}
    alice: {{password: "plain:wonder"}}
  clients: {{treadmill-1: {{user: mary, attributes: {{machine: treadmill}}}}}}
policies: open
durability: async
reload: watch
limits:
  max_keep_alive: 5m
  session_expiry: null
  queue: {{messages: 5, bytes: 1MiB, full: drop-oldest}}
  retain: no
denied_publish_311: disconnect
explain: true
authentication: {{methods: {{X: "mygym.auth:Method"}}, workers: 4, attempts: 5, cache: 0s}}
sys: {{interval: 0}}
log: {{format: json, level: debug}}
"""
