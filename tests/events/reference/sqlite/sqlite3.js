// What futoin-database uses of the package sqlite3, on SQLite in WebAssembly: sqlite3 itself takes minutes to build.
'use strict';
const wasm = require('node-sqlite3-wasm');

class Database {
    constructor(file, _mode, opened) {
        this._database = new wasm.Database(file);
        setImmediate(opened, null);
    }

    configure() {}

    serialize() {}

    run(sql, done = () => {}) {
        this._do(() => this._database.run(sql), (error, info = {}) =>
            done.call({ lastID: info.lastInsertRowid, changes: info.changes }, error));
    }

    all(sql, done) {
        this._do(() => this._database.all(sql), done);
    }

    close() {
        this._database.close();
    }

    _do(work, done) {
        let error = null, result;
        try {
            result = work();
        } catch (caught) {
            error = caught;
            error.code = /constraint/i.test(error.message) ? 'SQLITE_CONSTRAINT' : 'SQLITE_ERROR';
        }
        setImmediate(done, error, result);
    }
}

module.exports = { Database, OPEN_READWRITE: 2, OPEN_CREATE: 4, SQLITE_OPEN_FULLMUTEX: 0x10000 };
