// disqueue-node: every command of its client.
'use strict'

const assert = require('assert')
const { promisify } = require('util')
const Disqueue = require('disqueue-node')

async function tour (disqueue) {
  const call = (name, argument) => promisify(disqueue[name]).call(disqueue, argument)
  const hello = await call('hello', {})
  assert.strictEqual(hello.version, 1)
  assert.strictEqual((await call('info', {})).server.disque_version !== undefined, true)
  const id = await call('addJob', { queue: 'disqueue', job: 'body', timeout: 100, retry: 5, ttl: 60 })
  assert.strictEqual(await call('qlen', 'disqueue'), 1)
  assert.deepStrictEqual((await call('qscan', { busyloop: true })).queues, ['disqueue'])
  assert.strictEqual((await call('show', id)).state, 'queued')
  assert.deepStrictEqual(await call('getJob', { queue: 'disqueue', count: 1 }), [{ queue: 'disqueue', jobId: id, body: 'body' }])
  assert.strictEqual(await call('working', id), 5)
  assert.strictEqual(await call('nack', id), 1)
  const again = await call('getJob', { queue: ['disqueue', 'other'], withcounters: true })
  assert.deepStrictEqual([again[0].nacks, again[0].additionalDeliveries], [1, 0])
  assert.strictEqual(await call('enqueue', id), 1)
  assert.strictEqual(await call('dequeue', [id]), 1)
  assert.strictEqual(await call('ackJob', id), 1)
  assert.deepStrictEqual(await call('getJob', { queue: 'disqueue', nohang: true }), [])
  const other = await call('addJob', { queue: 'disqueue', job: 'other', async: true })
  assert.strictEqual(await call('fastAck', other), 1)
  assert.strictEqual(await call('delJob', other), 0)
  assert.strictEqual(await call('show', other), null)
}

const disqueue = new Disqueue({ host: '127.0.0.1', port: Number(process.argv[2]) })
disqueue.on('error', (error) => { console.error(error); process.exit(1) })
disqueue.on('connected', () => {
  tour(disqueue).then(() => process.exit(0), (error) => { console.error(error.stack.split('\n').reverse().join('\n')); process.exit(1) })
})
