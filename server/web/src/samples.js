// What each of the models that ship has seen the like of: a beginning to go on from, and a text to look at.
const SAMPLES = [
  [/shakespeare/, "ROMEO:\n", "ROMEO:\nBut, soft! what light through yonder window breaks?\nIt is the east, and Juliet is the sun.\n"],
  [/listops/, "add_10,(,median_10,(,2,9,),5,0,),=", "add_10,(,median_10,(,2,9,),5,0,),="],
  [/kjv|bible/, "In the beginning", "In the beginning God created the heaven and the earth."],
];

const sample = (id) => SAMPLES.find(([name]) => name.test(id)) ?? [null, "", ""];
export const promptFor = (id) => sample(id)[1];
export const textFor = (id) => sample(id)[2];
export const isSample = (text) => text === "" || SAMPLES.some(([, prompt, whole]) => text === prompt || text === whole);
