// thunk-disque: the promise interface of its client.
'use strict'

const assert = require('assert')
const disque = require('thunk-disque')

async function tour (client) {
  assert.strictEqual((await client.info()).disque_version !== undefined, true)
  assert.strictEqual(await client.ping(), 'PONG')
  assert.strictEqual((await client.hello())[0], 1)
  const id = await client.addjob('thunk', 'body', 0, 'RETRY', 5)
  assert.strictEqual(await client.qlen('thunk'), 1)
  assert.deepStrictEqual(await client.qpeek('thunk', 1), [['thunk', id, 'body']])
  assert.strictEqual((await client.qstat('thunk')).len, 1)
  assert.strictEqual((await client.show(id)).body, 'body')
  assert.deepStrictEqual((await client.qscan(0, 'BUSYLOOP'))[1], ['thunk'])
  assert.deepStrictEqual((await client.jscan('QUEUE', 'thunk'))[1], [id])
  assert.deepStrictEqual(await client.getjob('FROM', 'thunk'), [['thunk', id, 'body']])
  assert.strictEqual(await client.working(id), 5)
  assert.strictEqual(await client.nack(id), 1)
  assert.strictEqual((await client.getjob('WITHCOUNTERS', 'FROM', 'thunk'))[0][4], 1)
  assert.strictEqual(await client.ackjob(id), 1)
  assert.strictEqual(await client.getjob('NOHANG', 'FROM', 'thunk'), null)
  assert.strictEqual(await client.show(id), null)
  assert.strictEqual(await client.pause('thunk', 'out'), 'out')
  assert.strictEqual(await client.pause('thunk', 'none'), 'none')
  await assert.rejects(client.ackjob('nonsense'), /BADID/)
  assert.strictEqual((await client.time()).length, 2)
}

const client = disque.createClient([`127.0.0.1:${process.argv[2]}`], { usePromise: true })
client.on('error', (error) => { console.error(error); process.exit(1) })
tour(client).then(() => process.exit(0), (error) => { console.error(error.stack.split('\n').reverse().join('\n')); process.exit(1) })
