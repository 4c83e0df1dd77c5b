// Markdown to safe HTML. The model's words are not trusted: no scripts, no forms, no pictures from
// elsewhere (their addresses would tell a stranger what was said).

import DOMPurify from "dompurify";
import hljs from "highlight.js/lib/common";
import { Marked } from "marked";

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    code({ text, lang }) {
      const known = lang && hljs.getLanguage(lang) ? lang : null;
      const html = known ? hljs.highlight(text, { language: known }).value : escape(text);
      return `<figure class="code"><figcaption role="button" tabindex="0"><span>${escape(lang ?? "")}</span><span>Copy</span></figcaption><pre><code class="hljs">${html}</code></pre></figure>`;
    },
    html({ text }) {
      return escape(text); // tags are words that the model says
    },
    image({ text, href }) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
  },
});

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

/** Markdown as HTML; text that is nested too deeply for the stack as it is. */
function parsed(text: string): string {
  try {
    return marked.parse(text, { async: false });
  } catch {
    return `<p class="plain">${escape(text)}</p>`;
  }
}

export function render(text: string): string {
  const html = parsed(text);
  return DOMPurify.sanitize(html, { FORBID_TAGS: ["img", "style", "form", "input", "button"] });
}
