// The reference clients and the reference server, driven by lines of JSON: {id, do, ...} in, {id, result | error} out.
// What receivers get comes as {receiver, event, ...}. The packages are used as they are; all hooks are their options.
'use strict';
const readline = require('readline');
const $as = require('futoin-asyncsteps');
const { AdvancedCCM } = require('futoin-invoker');

const FACES = { gen: 'GenFace', poll: 'PollFace', push: 'PushFace' };
const RECEIVERS = { reliable: 'ReliableReceiver', live: 'LiveReceiver' };
const opened = new Map();

// The reference server throws this out of an event when a receiver leaves while it is pushed events.
process.on('uncaughtException', (error) => {
    if (error.message === 'CommError') return;
    console.error(error);
    process.exit(1);
});

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

const open = (as, { name, face, endpoint, credentials, options }) => {
    const ccm = new AdvancedCCM();
    require(`futoin-eventstream/${FACES[face]}`).register(as, ccm, face, endpoint, credentials, options || {});
    as.add((_as) => { opened.set(name, { call: ccm.iface(face), close: () => ccm.close() }); });
};

const call = (as, { name, method, args }) => opened.get(name).call[method](as, ...args);

// Add events, some at once, until each has its id; a call that fails for want of a connection is made again.
const addAll = (as, { name, type, from, count, atOnce }) => {
    const ids = [];
    let next = from;
    const face = opened.get(name).call;
    const worker = (as) => as.loop((as) => {
        if (next >= from + count) as.break();
        const n = next++;
        let isAgain = false;
        as.loop((as) => as.add(
            (as) => {
                as.add((as) => {
                    if (!isAgain) return;
                    as.waitExternal();
                    setTimeout(() => as.state && as.success(), 20);
                });
                as.add((as) => face.addEvent(as, type, { n }));
                as.add((as, id) => { ids.push([n, id]); as.break(); });
            },
            (as, error) => {
                // The client may send on a socket that is not open yet, when another call has begun to connect again.
                const isTooEarly = /_maxPayload|not open/.test(`${error} ${as.state.error_info}`);
                isAgain = isTooEarly || ['CommError', 'Timeout'].includes(error);
                if (!isAgain) return;
                say({ receiver: name, event: 'again', error: `${n}: ${error}: ${as.state.error_info}` });
                as.success();
            }));
    });
    const all = as.parallel();
    for (let i = 0; i < atOnce; ++i) all.add(worker);
    as.add((as) => as.success(ids));
};

const receive = (as, { name, kind, endpoint, credentials, options }) => {
    const receiver = new (require(`futoin-eventstream/${RECEIVERS[kind]}`))(new AdvancedCCM());
    const tell = (event, more) => say({ receiver: name, event, ...more });
    receiver.on('newEvents', (events) => tell('events', { events }));
    receiver.on('ready', () => tell('ready'));
    receiver.on('workerError', (error, info) => tell('lost', { error: `${error}: ${info}` }));
    receiver.on('receiverError', (error, info) => tell('refused', { error: `${error}: ${info}` }));
    const messageSniffer = (_info, message, isIncoming) => {
        const text = isIncoming ? message.toString() : '';
        const seq = text.includes(':onEvents"') && /"seq":(\d+)/.exec(text);
        if (seq) tell('seq', { seq: Number(seq[1]) });
    };
    receiver.start(endpoint, credentials, { messageSniffer, ...options });
    opened.set(name, { close: () => receiver.stop() });
};

const serve = (as, { name, port, database, users, options }) => {
    const { LegacySecurityProvider, NodeExecutor } = require('futoin-executor');
    const DBServiceApp = require('futoin-eventstream/DBServiceApp');
    const ccm = new AdvancedCCM();
    const securityProvider = new LegacySecurityProvider(as, ccm);
    as.add((as) => {
        for (const [user, secret] of Object.entries(users || {}))
            securityProvider.addUser(user, secret, {}, true);
        const limits = { concurrent: 1e4, max_queue: 1e5, rate: 1e9 };
        const executor = new NodeExecutor(ccm, {
            httpAddr: '127.0.0.1', httpPort: port, httpPath: '/futoin', securityProvider, secureChannel: true,
            limitConf: { default: limits }, secureObjectPrototype: false,
        });
        const listening = new Promise((resolve) => executor.once('ready', resolve));
        executor.on('notExpected', (...args) => say({ receiver: name, event: 'unexpected', error: String(args[0]) + args[1] }));
        const evtOptions = { sleep_min: 10, sleep_step: 10, ...options };
        const app = new DBServiceApp(as, { ccm, executor, databaseConfig: database, evtOptions });
        opened.set(name, { database: () => ccm.db('evt'), close: () => app.close() });
        as.add((as) => {
            as.waitExternal();
            listening.then(() => as.state && as.success());
        });
    });
};

const query = (as, { name, sql }) => opened.get(name).database().query(as, sql);

const close = (_as, { name }) => {
    opened.get(name).close();
    opened.delete(name);
};

const DO = { open, call, addAll, receive, serve, query, close };

readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const command = JSON.parse(line);
    $as().add(
        (as) => {
            DO[command.do](as, command);
            as.add((_as, result = null) => say({ id: command.id, result }));
        },
        (as, error) => {
            say({ id: command.id, error, info: String(as.state.error_info) });
            as.success();
        },
    ).execute();
}).on('close', () => process.exit(0));
