import { expect, it } from "vitest";
import { withQuestionMarks } from "./question-marks.js";

it("gives each placeholder its own value, in the order of the text", () => {
  const { text, params } = withQuestionMarks("SELECT $2::text, $1, $2, $10", ["a", "b", 3, 4, 5, 6, 7, 8, 9, "j"]);
  expect([text, params]).toEqual(["SELECT ?::text, ?, ?, ?", ["b", "a", "b", "j"]]);
});

it("leaves literals and names alone, but for their question marks", () => {
  const { text, params } = withQuestionMarks(`SELECT '$1 it''s $2?', "a$1""?", data ? 'x', $1`, ["a"]);
  expect([text, params]).toEqual([`SELECT '$1 it''s $2\\?', "a$1""\\?", data \\? 'x', ?`, ["a"]]);
});
