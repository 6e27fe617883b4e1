/** Answer requests with the JavaScript reader: the entities of texts, together and alone, or an error message. */
export async function answer(load, requests, ort) {
  const answers = [];
  for (const { model, texts } of requests) {
    try {
      const ner = await load(model, ort);
      const together = await ner.batch(texts);
      const alone = [];
      if (texts.length > 1) for (const text of texts) alone.push(await ner.entities(text));
      answers.push({ about: ner.about, together, alone });
    } catch (error) {
      answers.push({ error: `${error.name}: ${error.message}` });
    }
  }
  return answers;
}
