import assert from "node:assert/strict";
import { test } from "node:test";
import * as tree from "./tree.ts";

function talk() {
  let t = tree.newTalk("a", 1);
  let m;
  [t, m] = tree.add(t, null, "user", "one");
  [t, m] = tree.add(t, m.id, "assistant", "1");
  [t, m] = tree.add(t, m.id, "user", "two");
  [t, m] = tree.add(t, m.id, "assistant", "2");
  return t;
}

test("a path goes from the first message to the last", () => {
  assert.deepEqual(tree.path(talk()).map((m) => m.text), ["one", "1", "two", "2"]);
});

test("an edited message is a branch, and the old one stays", () => {
  const old = talk();
  const [t, m] = tree.add(old, 2, "user", "three");
  assert.deepEqual(tree.path(t).map((x) => x.text), ["one", "1", "three"]);
  assert.deepEqual(tree.siblings(t, m), [3, 5]);
  assert.deepEqual(tree.path(t, tree.newestLeaf(t, 3)).map((x) => x.text), ["one", "1", "two", "2"]);
});

test("removing takes what is behind, and shows the branch beside it", () => {
  const [t] = tree.add(talk(), 2, "user", "three");
  const rest = tree.remove(t, 3);
  assert.deepEqual(Object.keys(rest.messages), ["1", "2", "5"]);
  assert.deepEqual(tree.path(rest).map((x) => x.text), ["one", "1", "three"]);
  assert.deepEqual(tree.path(tree.remove(rest, 5)).map((x) => x.text), ["one", "1"]);
  assert.equal(tree.remove(talk(), 1).leaf, null);
});

test("what is not a conversation is refused", () => {
  assert.deepEqual(tree.checked(JSON.parse(JSON.stringify(talk()))), talk());
  for (const bad of [null, 3, {}, { ...talk(), leaf: 9 }, { ...talk(), messages: { 1: { id: 1 } } }])
    assert.equal(tree.checked(bad), null);
  const cycle = talk();
  cycle.messages[1]!.parent = 4;
  assert.equal(tree.checked(cycle), null);
});

test("the oldest turns leave a full context, and the last one stays", () => {
  let t = talk();
  const texts = (messages: tree.Message[]) => messages.map((m) => m.text);
  assert.deepEqual(texts(tree.fitted(tree.path(t), 100)), ["one", "1", "two", "2"]);
  t = tree.change(t, 4, { used: 80 });
  [t] = tree.add(t, 4, "user", "three");
  assert.deepEqual(texts(tree.fitted(tree.path(t), 1000)), ["one", "1", "two", "2", "three"]);
  assert.deepEqual(texts(tree.fitted(tree.path(t), 100)), ["two", "2", "three"]);
  assert.deepEqual(texts(tree.fitted(tree.path(t), 10)), ["three"]);
  t = tree.change(t, 4, { used: 50, left: 2 });
  assert.deepEqual(texts(tree.fitted(tree.path(t), 1000)), ["two", "2", "three"]);
  assert.equal(tree.withoutOldest(tree.path(t).slice(4)), null);
});

test("images stay with their message, and nothing else is taken for one", () => {
  const [t, m] = tree.add(talk(), null, "user", "", { images: ["data:image/png;base64,AA=="] });
  assert.deepEqual(tree.checked(JSON.parse(JSON.stringify(t)))?.messages[m.id]?.images, m.images);
  const other = tree.change(t, m.id, { images: ["https://example.org/a.png", 3 as never] });
  assert.equal(tree.checked(other)?.messages[m.id]?.images, undefined);
});

test("text files stay with their message, in a fence that they do not end", () => {
  const files = [{ name: "a.md", text: "see ```\ncode\n```\n" }];
  const [t, m] = tree.add(talk(), null, "user", "What is it?", { files });
  assert.equal(tree.withFiles(m), "a.md:\n````\nsee ```\ncode\n```\n````\n\nWhat is it?");
  assert.deepEqual(tree.checked(JSON.parse(JSON.stringify(t)))?.messages[m.id]?.files, files);
  const other = tree.change(t, m.id, { files: [{ name: 3 }, null] as never });
  assert.equal(tree.checked(other)?.messages[m.id]?.files, undefined);
});

test("a chat is found by words of its title and of its messages", () => {
  const named = { ...talk(), title: "Numbers" };
  for (const query of ["", "numb", "TWO one", " 2 "]) assert.ok(tree.matches(named, query), query);
  for (const query of ["three", "one three"]) assert.ok(!tree.matches(named, query), query);
});

test("a chat as Markdown has the shown branch", () => {
  const [t] = tree.add({ ...talk(), title: "Numbers", system: "Count." }, 2, "user", "three");
  const text = tree.toMarkdown(t);
  assert.ok(text.startsWith("# Numbers\n\n## System\n\nCount.\n\n## User\n\none\n"), text);
  assert.ok(text.includes("## Assistant\n\n1\n\n## User\n\nthree\n") && !text.includes("two"), text);
});
